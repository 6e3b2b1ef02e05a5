/* A layer of logic gates on a CPU, neurons [first, last) of it: see on_cuda.py for what is computed. Rows of images are
   contiguous. Sums over images are kept in LANES partial sums, so that their order does not depend on the machine's
   vectors or on the threads. */
#include <stddef.h>
#include <stdint.h>

#define LANES 16

typedef struct { float c0, c1, c2, c3; } coefficients;

/* Of sixteen gates, chosen or mixed: the number of a gate spells its truth table. */
static coefficients mixed(const float *gates)
{
    float t00 = 0, t01 = 0, t10 = 0, t11 = 0;
    for (int gate = 0; gate < 16; gate++) {
        if (gate & 8) t00 += gates[gate];
        if (gate & 4) t01 += gates[gate];
        if (gate & 2) t10 += gates[gate];
        if (gate & 1) t11 += gates[gate];
    }
    return (coefficients){t00, t10 - t00, t01 - t00, t11 - t10 - t01 + t00};
}

void forward(const float *x, const float *gates, const int64_t *wiring, float *restrict y, size_t neurons,
             size_t images, size_t first, size_t last)
{
    for (size_t j = first; j < last; j++) {
        const float *u = x + wiring[j] * images, *v = x + wiring[neurons + j] * images;
        const coefficients c = mixed(gates + 16 * j);
        float *out = y + j * images;
        for (size_t b = 0; b < images; b++)
            out[b] = c.c0 + c.c1 * u[b] + v[b] * (c.c2 + c.c3 * u[b]);
    }
}

void backward_to_input(const float *x, const float *gates, const int64_t *wiring, const int64_t *users,
                       const int64_t *starts, const float *g, float *restrict result, size_t neurons, size_t images,
                       size_t first, size_t last)
{
    for (size_t i = first; i < last; i++) {
        float *out = result + i * images;
        for (size_t b = 0; b < images; b++)
            out[b] = 0;
        for (int64_t k = starts[i]; k < starts[i + 1]; k++) {
            const size_t side = (size_t)users[k] >= neurons, j = (size_t)users[k] - side * neurons;
            const float *grad = g + j * images, *other = x + wiring[(1 - side) * neurons + j] * images;
            const coefficients c = mixed(gates + 16 * j);
            const float slope = side ? c.c2 : c.c1;
            for (size_t b = 0; b < images; b++)
                out[b] += grad[b] * (slope + c.c3 * other[b]);
        }
    }
}

void backward_to_gates(const float *x, const int64_t *wiring, const float *g, float *restrict result, size_t neurons,
                       size_t images, size_t first, size_t last)
{
    for (size_t j = first; j < last; j++) {
        const float *u = x + wiring[j] * images, *v = x + wiring[neurons + j] * images, *grad = g + j * images;
        float part[4][LANES] = {{0}}, s[4] = {0};
        size_t b = 0;
        for (; b + LANES <= images; b += LANES)
            for (size_t lane = 0; lane < LANES; lane++) {
                const float gu = grad[b + lane] * u[b + lane];
                part[0][lane] += grad[b + lane];
                part[1][lane] += gu;
                part[2][lane] += grad[b + lane] * v[b + lane];
                part[3][lane] += gu * v[b + lane];
            }
        for (; b < images; b++) {
            part[0][b % LANES] += grad[b];
            part[1][b % LANES] += grad[b] * u[b];
            part[2][b % LANES] += grad[b] * v[b];
            part[3][b % LANES] += grad[b] * u[b] * v[b];
        }
        for (int sum = 0; sum < 4; sum++)
            for (int lane = 0; lane < LANES; lane++)
                s[sum] += part[sum][lane];
        const float corners[4] = {s[0] - s[1] - s[2] + s[3], s[2] - s[3], s[1] - s[3], s[3]};
        for (int gate = 0; gate < 16; gate++) {
            float total = 0;
            for (int corner = 0; corner < 4; corner++)
                if (gate & (8 >> corner)) total += corners[corner];
            result[16 * j + gate] = total;
        }
    }
}
