/* Launches the kernels of this bundle from C (C99), by any means of calling cuLaunchKernel.
 *
 * rooftile_pack checks the arguments of a launch and fills the array that cuLaunchKernel takes; the
 * tables below say which file to load, under which name, and with what grid, block and memory.
 */
#ifndef ROOFTILE_BUNDLE_H
#define ROOFTILE_BUNDLE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ROOFTILE_MOST_PARAMETERS 64

typedef enum {
    ROOFTILE_TENSOR,          /* the address of a tensor */
    ROOFTILE_WHOLE,           /* a whole number that follows from the sizes */
    ROOFTILE_SCALAR,          /* a number, with a default */
    ROOFTILE_NUMBER,          /* this very number */
    ROOFTILE_SCRATCH,         /* device memory for descriptors, null where its size is 0 */
    ROOFTILE_PROFILE_SCRATCH  /* the same for instrumentation */
} rooftile_role;

typedef struct {
    const char *name, *type;
    unsigned bytes, offset, divisible_by;
    rooftile_role role;
    int tensor;               /* which of the tensors, for ROOFTILE_TENSOR */
    double otherwise;         /* default of a ROOFTILE_SCALAR, value of a ROOFTILE_NUMBER */
} rooftile_parameter;

typedef struct {
    const char *name;
    int64_t least, most, multiple_of; /* most 0: no limit */
} rooftile_size;

typedef struct {
    const char *symbol, *op, *dtype, *form, *target;
    const char *binary, *ptx; /* files of the bundle, NULL for none */
    int parameter_count, size_count, tensor_count;
    const rooftile_parameter *parameters;
    const rooftile_size *sizes;
    const char *const *tensors;
    unsigned threads, cluster, dynamic_shared_bytes;
    unsigned scratch_bytes_per_block, profile_scratch_bytes_per_block;
    void (*wholes)(const int64_t *sizes, int64_t *values); /* by parameter */
    void (*grid)(const int64_t *sizes, int64_t *blocks);   /* NULL: the caller knows it */
} rooftile_kernel;

/* What a launch needs, filled by rooftile_pack. */
typedef struct {
    uint64_t values[ROOFTILE_MOST_PARAMETERS];
    void *pointers[ROOFTILE_MOST_PARAMETERS]; /* kernelParams of cuLaunchKernel */
    unsigned grid[3];                         /* its x counts blocks, not clusters */
    uint64_t scratch_bytes, profile_scratch_bytes;
} rooftile_launch;

/* A product; one past 64 bits is their last number. */
static int64_t rooftile_times(int64_t a, int64_t b)
{
    const int64_t most = INT64_MAX;
    if (b == 0 || (a < 0 ? -a : a) <= most / (b < 0 ? -b : b)) return a * b;
    return most;
}

/* A quotient rounded up; that of what is past 64 bits is so too. */
static int64_t rooftile_ceil(int64_t a, int64_t by)
{
    return a == INT64_MAX ? a : a / by + (a % by > 0);
}

/* Checks sizes and addresses and packs the arguments.
 *
 * sizes, tensors: in the kernel's order. scalars: NULL, or a value for every parameter of which
 * those of ROOFTILE_SCALAR count. scratch: NULL, or device memory of scratch_bytes and
 * profile_scratch_bytes. Returns 0, or 1 with the reason in why (of 200 bytes).
 */
static int rooftile_pack(const rooftile_kernel *kernel, const int64_t *sizes,
                         const uint64_t *tensors, const double *scalars,
                         const uint64_t *scratch, rooftile_launch *launch, char *why)
{
    int64_t wholes[ROOFTILE_MOST_PARAMETERS], blocks[3] = {1, 1, 1};
    uint64_t all;
    int i;
    for (i = 0; i < kernel->size_count; i++) {
        const rooftile_size *size = &kernel->sizes[i];
        if (sizes[i] < size->least || (size->most && sizes[i] > size->most)
            || sizes[i] % size->multiple_of) {
            snprintf(why, 200, "%s: %s must be %lld to %lld (0: any) by %lld, got %lld",
                     kernel->symbol, size->name, (long long)size->least, (long long)size->most,
                     (long long)size->multiple_of, (long long)sizes[i]);
            return 1;
        }
    }
    kernel->wholes(sizes, wholes);
    if (kernel->grid) kernel->grid(sizes, blocks);
    blocks[0] = rooftile_times(blocks[0], kernel->cluster);
    if (blocks[0] > INT32_MAX || blocks[1] > 65535 || blocks[2] > 65535 || blocks[0] < 0
        || blocks[1] < 0 || blocks[2] < 0) {
        snprintf(why, 200, "%s: the grid is more than a GPU takes", kernel->symbol);
        return 1;
    }
    for (i = 0; i < 3; i++) launch->grid[i] = (unsigned)blocks[i];
    all = (uint64_t)(blocks[0] * blocks[1] * blocks[2]); /* at most 2^63 */
    launch->scratch_bytes = all * kernel->scratch_bytes_per_block;
    launch->profile_scratch_bytes = all * kernel->profile_scratch_bytes_per_block;
    if ((kernel->scratch_bytes_per_block && all > UINT64_MAX / kernel->scratch_bytes_per_block)
        || (kernel->profile_scratch_bytes_per_block
            && all > UINT64_MAX / kernel->profile_scratch_bytes_per_block)) {
        snprintf(why, 200, "%s: its scratch is too large", kernel->symbol);
        return 1;
    }
    for (i = 0; i < kernel->parameter_count; i++) {
        const rooftile_parameter *parameter = &kernel->parameters[i];
        uint64_t value = 0;
        if (parameter->role == ROOFTILE_TENSOR) {
            value = tensors[parameter->tensor];
        } else if (parameter->role == ROOFTILE_WHOLE) {
            int bits = (int)parameter->bytes * 8 - (parameter->type[0] == 'i');
            int64_t least = parameter->type[0] == 'i' ? -1 : 0; /* of what is past the bits */
            value = (uint64_t)wholes[i];
            if (wholes[i] == INT64_MAX || (wholes[i] < 0 && !least)
                || (bits < 63 && (wholes[i] >> bits) != 0 && (wholes[i] >> bits) != least)) {
                snprintf(why, 200, "%s: %s is an %s, %lld does not fit", kernel->symbol,
                         parameter->name, parameter->type, (long long)wholes[i]);
                return 1;
            }
        } else if (parameter->role == ROOFTILE_SCALAR || parameter->role == ROOFTILE_NUMBER) {
            int given = scalars && parameter->role == ROOFTILE_SCALAR;
            double wide = given ? scalars[i] : parameter->otherwise;
            float narrow = (float)wide; /* an fp32 takes 4 bytes: no C double */
            if (parameter->bytes < 4) {
                snprintf(why, 200, "%s: %s is an %s, which C cannot pass", kernel->symbol,
                         parameter->name, parameter->type);
                return 1;
            }
            if (parameter->bytes == 8) memcpy(&value, &wide, 8);
            else memcpy(&value, &narrow, 4);
        } else if (scratch) {
            value = scratch[parameter->role == ROOFTILE_PROFILE_SCRATCH];
        }
        if (parameter->role <= ROOFTILE_WHOLE && value % parameter->divisible_by) {
            snprintf(why, 200, "%s: %s must be a multiple of %u, got %llu", kernel->symbol,
                     parameter->name, parameter->divisible_by, (unsigned long long)value);
            return 1;
        }
        launch->values[i] = value;
        launch->pointers[i] = &launch->values[i];
    }
    return 0;
}

