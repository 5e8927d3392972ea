/* Softmax of a bundle from C: cc -I BUNDLE example.c -ldl -lm && ./a.out BUNDLE [libcuda.so.1] */
#include "bundle.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS = 64, COLS = 4096, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, DYNAMIC_SHARED = 8 };

typedef void *handle;

static void *driver;

/* A function of the driver, or the end. */
static void *function(const char *name)
{
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(3);
    }
    return found;
}

static void check(const char *what, int code)
{
    if (code) {
        fprintf(stderr, "%s: error %d of the driver\n", what, code);
        exit(10);
    }
}

/* Calls a function of the driver by its name and type. */
#define CALL(name, types, ...) check(name, ((int(*) types)function(name))(__VA_ARGS__))

/* The kernel of softmax in bfloat16 for a GPU. */
static const rooftile_kernel *find(int capability)
{
    char target[16];
    int i;
    snprintf(target, sizeof target, "sm_%d", capability);
    for (i = 0; rooftile_kernels[i]; i++) {
        const rooftile_kernel *kernel = rooftile_kernels[i];
        if (!strcmp(kernel->op, "softmax") && !strcmp(kernel->dtype, "bfloat16")
            && !strcmp(kernel->form, "aligned")
            && !strcmp(kernel->target, target) && kernel->binary)
            return kernel;
    }
    fprintf(stderr, "the bundle has no softmax for %s\n", target);
    exit(5);
}

static char *contents(const char *folder, const char *name)
{
    char path[4096];
    char *data = calloc(1, 1 << 20);
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    if (!file || !data || fread(data, 1, 1 << 20, file) == 0) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(7);
    }
    fclose(file);
    return data;
}

int main(int count, char **words)
{
    static uint16_t host[ROWS * COLS];
    const int64_t sizes[] = {ROWS, COLS};
    int device = 0, major = 0, minor = 0, i;
    handle context, module, entry;
    uint64_t tensors[2];
    rooftile_launch launch;
    char why[200];
    double sum = 0;
    driver = dlopen(count > 2 ? words[2] : "libcuda.so.1", RTLD_NOW);
    if (count < 2 || !driver) {
        fprintf(stderr, count < 2 ? "usage: %s BUNDLE [DRIVER]\n" : "%s: no driver\n", words[0]);
        return count < 2 ? 2 : 3;
    }
    CALL("cuInit", (unsigned), 0);
    CALL("cuDeviceGetAttribute", (int *, int, int), &major, CAPABILITY_MAJOR, device);
    CALL("cuDeviceGetAttribute", (int *, int, int), &minor, CAPABILITY_MINOR, device);
    CALL("cuDevicePrimaryCtxRetain", (handle *, int), &context, device);
    CALL("cuCtxSetCurrent", (handle), context);
    const rooftile_kernel *kernel = find(major * 10 + minor);
    CALL("cuModuleLoadDataEx", (handle *, const void *, unsigned, int *, void **), &module,
         contents(words[1], kernel->binary), 0, NULL, NULL);
    CALL("cuModuleGetFunction", (handle *, handle, const char *), &entry, module, kernel->symbol);
    CALL("cuFuncSetAttribute", (handle, int, int), entry, DYNAMIC_SHARED,
         (int)kernel->dynamic_shared_bytes);
    for (i = 0; i < ROWS * COLS; i++) host[i] = (uint16_t)(0x3f80 + i % 64); /* 1 to 1.5 */
    for (i = 0; i < 2; i++) CALL("cuMemAlloc_v2", (uint64_t *, size_t), &tensors[i], sizeof host);
    CALL("cuMemcpyHtoD_v2", (uint64_t, const void *, size_t), tensors[0], host, sizeof host);
    if (rooftile_pack(kernel, sizes, tensors, NULL, NULL, &launch, why)) {
        fprintf(stderr, "%s\n", why);
        return 8;
    }
    CALL("cuLaunchKernel", (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
         unsigned, handle, void **, void **), entry, launch.grid[0], launch.grid[1],
         launch.grid[2], kernel->threads, 1, 1, kernel->dynamic_shared_bytes, NULL,
         launch.pointers, NULL);
    CALL("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), host, tensors[1], sizeof host);
    for (i = 0; i < COLS; i++) {
        uint32_t bits = (uint32_t)host[i] << 16;
        float value;
        memcpy(&value, &bits, 4);
        sum += value;
    }
    printf("%s: %d blocks of %u threads, row 0 sums to %.4f\n", kernel->symbol, launch.grid[0],
           kernel->threads, sum);
    return fabs(sum - 1) < 0.01 ? 0 : 9;
}
