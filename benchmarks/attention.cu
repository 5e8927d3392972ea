// Attention forward in CUDA C++, its warps laid out by hand: o = softmax(scale * q @ k.T) @ v.
//
// A block of four warps holds BLOCK_M queries and walks the keys. A warp holds 16 * TILES queries
// whole, so that no row's maximum or sum leaves it. Products are mma.sync on the tensor cores, keys
// and values come one tile ahead by cp.async, and 16-byte chunks are swizzled against bank
// conflicts of ldmatrix. Tensors are [batch * heads, length, HEAD_DIM], contiguous.
//
// Needs no header, so NVRTC compiles it anywhere. Given by -D: HEAD_DIM (a multiple of 64), BLOCK_N
// (of 16), TILES, CAUSAL (top left) and FP16 (else bfloat16).
// Source: Dao 2023, https://arxiv.org/abs/2307.08691

typedef unsigned int u32;
typedef unsigned short u16;

constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int BLOCK_M = 16 * TILES * WARPS;
constexpr int CHUNKS = HEAD_DIM / 8;  // of 16 bytes, in a row
constexpr int KEY_TILES = BLOCK_N / 8;
constexpr int WIDTH_TILES = HEAD_DIM / 8;
#define NONE __int_as_float(0xff800000)  // minus infinity, without a header

__device__ __forceinline__ u32 shared_address(int row, int chunk) {
  return (row * CHUNKS + (chunk ^ (row & 7))) * 16;
}

// Rows [first, first + ROWS) of a head; those from length on are 0.
template <int ROWS>
__device__ __forceinline__ void fetch(u32 to, const u16* from, int first, int length) {
  static_assert(ROWS * CHUNKS % THREADS == 0, "each thread copies as many chunks");
#pragma unroll
  for (int i = 0; i < ROWS * CHUNKS / THREADS; i++) {
    int place = i * THREADS + threadIdx.x;
    int row = place / CHUNKS, chunk = place % CHUNKS;
    int there = first + row < length;
    const u16* source = from + (there ? (long long)(first + row) * HEAD_DIM + chunk * 8 : 0);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     to + shared_address(row, chunk)),
                 "l"(source), "r"(there * 16));
  }
}

__device__ __forceinline__ void load_matrices(u32 (&x)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address));
}

__device__ __forceinline__ void load_transposed(u32 (&x)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address));
}

#if FP16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#define PACK "cvt.rn.f16x2.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#define PACK "cvt.rn.bf16x2.f32"
#endif

__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 pack(float low, float high) {
  u32 x;
  asm(PACK " %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The four lanes that hold a row.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_forward(const u16* __restrict__ q, const u16* __restrict__ k,
                      const u16* __restrict__ v, u16* __restrict__ o, int q_len, int k_len,
                      float to_base2) {
  extern __shared__ __align__(128) unsigned char memory[];
  const u32 q_at = (u32)__cvta_generic_to_shared(memory);
  const u32 kv_at = q_at + BLOCK_M * HEAD_DIM * 2;
  constexpr u32 TILE_BYTES = BLOCK_N * HEAD_DIM * 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int of_four = lane / 8, in_eight = lane % 8;
  // the longest rows of a causal mask go first
  const int block = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = block * BLOCK_M, warp_row = warp * 16 * TILES;
  const long long head = blockIdx.y;
  q += head * q_len * HEAD_DIM;
  o += head * q_len * HEAD_DIM;
  k += head * k_len * HEAD_DIM;
  v += head * k_len * HEAD_DIM;
  const int keys = CAUSAL ? min(k_len, first_row + BLOCK_M) : k_len;
  const int steps = (keys + BLOCK_N - 1) / BLOCK_N;

  fetch<BLOCK_M>(q_at, q, first_row, q_len);
  fetch<BLOCK_N>(kv_at, k, 0, k_len);
  fetch<BLOCK_N>(kv_at + TILE_BYTES, v, 0, k_len);
  asm volatile("cp.async.commit_group;");

  float acc[TILES][WIDTH_TILES][4] = {};
  float most[TILES][2], sum[TILES][2];
#pragma unroll
  for (int t = 0; t < TILES; t++) {
    most[t][0] = most[t][1] = NONE;
    sum[t][0] = sum[t][1] = 0.0f;
  }

  for (int step = 0; step < steps; step++) {
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();  // this tile is there for all, and all are done with the one before
    const u32 k_at = kv_at + (step & 1) * 2 * TILE_BYTES, v_at = k_at + TILE_BYTES;
    if (step + 1 < steps) {
      const u32 next = kv_at + (~step & 1) * 2 * TILE_BYTES;
      fetch<BLOCK_N>(next, k, (step + 1) * BLOCK_N, k_len);
      fetch<BLOCK_N>(next + TILE_BYTES, v, (step + 1) * BLOCK_N, k_len);
      asm volatile("cp.async.commit_group;");
    }

    float s[TILES][KEY_TILES][4] = {};
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 16; i++) {
      u32 a[TILES][4];
#pragma unroll
      for (int t = 0; t < TILES; t++)
        load_matrices(a[t], q_at + shared_address(warp_row + t * 16 + (of_four & 1) * 8 + in_eight,
                                                  i * 2 + of_four / 2));
#pragma unroll
      for (int n = 0; n < KEY_TILES / 2; n++) {
        u32 b[4];
        load_matrices(b, k_at + shared_address(n * 16 + of_four / 2 * 8 + in_eight,
                                               i * 2 + (of_four & 1)));
#pragma unroll
        for (int t = 0; t < TILES; t++) {
          multiply(s[t][2 * n], a[t], b[0], b[1]);
          multiply(s[t][2 * n + 1], a[t], b[2], b[3]);
        }
      }
    }

    const int last_key = (step + 1) * BLOCK_N - 1;
    if (last_key >= k_len || (CAUSAL && last_key > first_row + warp_row)) {
#pragma unroll
      for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
          for (int c = 0; c < 4; c++) {
            int key = step * BLOCK_N + n * 8 + lane % 4 * 2 + c % 2;
            int row = first_row + warp_row + t * 16 + lane / 4 + c / 2 * 8;
            if (key >= k_len || (CAUSAL && key > row)) s[t][n][c] = NONE;
          }
    }

#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float found = NONE;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++)
          found = fmaxf(found, fmaxf(s[t][n][2 * half], s[t][n][2 * half + 1]));
        found = fmaxf(most[t][half], row_max(found) * to_base2);
        const float base = found == NONE ? 0.0f : found;
        const float fade = exp2_of(most[t][half] - base);
        most[t][half] = found;
        float added = 0.0f;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
          for (int c = 2 * half; c < 2 * half + 2; c++) {
            s[t][n][c] = exp2_of(fmaf(s[t][n][c], to_base2, -base));
            added += s[t][n][c];
          }
        sum[t][half] = sum[t][half] * fade + added;
#pragma unroll
        for (int d = 0; d < WIDTH_TILES; d++) {
          acc[t][d][2 * half] *= fade;
          acc[t][d][2 * half + 1] *= fade;
        }
      }

#pragma unroll
    for (int n = 0; n < KEY_TILES / 2; n++) {
      u32 p[TILES][4];
#pragma unroll
      for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          p[t][i] = pack(s[t][2 * n + i / 2][i % 2 * 2], s[t][2 * n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
      for (int d = 0; d < WIDTH_TILES / 2; d++) {
        u32 b[4];
        load_transposed(b, v_at + shared_address(n * 16 + (of_four & 1) * 8 + in_eight,
                                                 d * 2 + of_four / 2));
#pragma unroll
        for (int t = 0; t < TILES; t++) {
          multiply(acc[t][2 * d], p[t], b[0], b[1]);
          multiply(acc[t][2 * d + 1], p[t], b[2], b[3]);
        }
      }
    }
  }

#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float whole = row_sum(sum[t][half]);
      const float part = whole == 0.0f ? 0.0f : 1.0f / whole;
      const int row = first_row + warp_row + t * 16 + lane / 4 + half * 8;
      if (row >= q_len) continue;
      u32* to = (u32*)(o + (long long)row * HEAD_DIM) + lane % 4;
#pragma unroll
      for (int d = 0; d < WIDTH_TILES; d++)
        to[d * 4] = pack(acc[t][d][2 * half] * part, acc[t][d][2 * half + 1] * part);
    }
}
