/* A network of logic gates in packed bits on a CPU. A word holds 32 images of one neuron: bit i of word w is image
   32 w + i, and images that fill up the last word are 0. Rows of words and of gradients are contiguous, one per neuron.
   A function does rows [first, last), so that threads can share them; what it computes of a row does not depend on
   who does the others. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define WORD 32
#define GATES 16
#define BLOCK 64 /* neurons that are chosen at once */
#define TILE 8   /* vectors of gradients that are gathered at once */

/* ---- bits in and out ---- */

/* [images, features], features [first, last) of it, to words; 0 where a value is neither 0 nor 1. */
#define PACK(name, type)                                                                                            \
    int name(const type *x, uint32_t *out, size_t features, size_t images, size_t words, size_t first, size_t last) \
    {                                                                                                               \
        uint32_t square[256], strange = 0;                                                                          \
        for (size_t f0 = first; f0 < last; f0 += 256) {                                                             \
            const size_t many = last - f0 < 256 ? last - f0 : 256;                                                  \
            for (size_t w = 0; w < words; w++) {                                                                    \
                for (size_t f = 0; f < many; f++)                                                                   \
                    square[f] = 0;                                                                                  \
                for (size_t i = 0; i < WORD && WORD * w + i < images; i++) {                                        \
                    const type *row = x + (WORD * w + i) * features + f0;                                           \
                    for (size_t f = 0; f < many; f++) {                                                             \
                        const uint32_t one = row[f] == (type)1;                                                     \
                        strange |= !one & (row[f] != (type)0);                                                      \
                        square[f] |= one << i;                                                                      \
                    }                                                                                               \
                }                                                                                                   \
                for (size_t f = 0; f < many; f++)                                                                   \
                    out[(f0 + f) * words + w] = square[f];                                                          \
            }                                                                                                       \
        }                                                                                                           \
        return !strange;                                                                                            \
    }
PACK(pack_floats, float)
PACK(pack_bytes, uint8_t)

/* How many neurons of each class's group are 1, [images, classes], over tau; classes [first, last). */
void count(const uint32_t *y, float *scores, float tau, size_t group, size_t classes, size_t images, size_t words,
           size_t first, size_t last)
{
    for (size_t c = first; c < last; c++)
        for (size_t w = 0; w < words; w++) {
            uint32_t total[WORD] = {0};
            for (size_t n = c * group; n < (c + 1) * group; n++) {
                const uint32_t word = y[n * words + w];
                for (unsigned i = 0; i < WORD; i++)
                    total[i] += (word >> i) & 1;
            }
            for (size_t i = 0; i < WORD && WORD * w + i < images; i++)
                scores[(WORD * w + i) * classes + c] = (float)total[i] / tau;
        }
}

/* Words to [images, neurons] of 0 and 1, images [first, last). */
void unpack(const uint32_t *y, float *out, size_t neurons, size_t words, size_t first, size_t last)
{
    for (size_t image = first; image < last; image++)
        for (size_t n = 0; n < neurons; n++)
            out[image * neurons + n] = (float)((y[n * words + image / WORD] >> (image % WORD)) & 1);
}

/* ---- forward ---- */

/* Of one-hot rows [neurons, 16], the gate of each neuron, and what it makes of its two inputs. Each run has `own`
   neurons; broken[run] is set to 1 where a row of its is not one-hot. A row of zeros, where no gate was allowed, gives 0,
   as gate 0 does. */
void forward(const uint32_t *x, const float *chosen, const int64_t *wiring, uint8_t *gates, uint32_t *restrict y,
             float *broken, size_t neurons, size_t words, size_t own, size_t first, size_t last)
{
    for (size_t n = first; n < last; n++) {
        const float *row = chosen + GATES * n;
        float gate = 0, total = 0, square = 0;
        for (int k = 0; k < GATES; k++) {
            gate += (float)k * row[k];
            total += row[k];
            square += row[k] * row[k];
        }
        if (!(total == 1 && square == 1)) { /* NaN too */
            if (!(total == 0 && square == 0))
                broken[n / own] = 1;
            gate = 0;
        }
        const unsigned t = gates[n] = (uint8_t)gate;
        const uint32_t t00 = -((t >> 3) & 1), t01 = -((t >> 2) & 1), t10 = -((t >> 1) & 1), t11 = -(t & 1);
        const uint32_t *a = x + wiring[n] * words, *b = x + wiring[neurons + n] * words;
        for (size_t w = 0; w < words; w++)
            y[n * words + w] = (a[w] & ((b[w] & t11) | (~b[w] & t10))) | (~a[w] & ((b[w] & t01) | (~b[w] & t00)));
    }
}

/* ---- backward ---- */

typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t masks __attribute__((vector_size(64)));
#define LANES 16
#define AHEAD 4 /* neurons whose gradients are fetched before they are needed */

/* `high` in the lanes whose bits are set, `low` in the others. */
static inline lanes where(uint32_t bits, lanes high, lanes low)
{
#ifdef __AVX512F__
    return (lanes)_mm512_mask_blend_ps((__mmask16)bits, (__m512)low, (__m512)high);
#else
    const masks lane = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
    const masks set = ((int32_t)bits & lane) != 0;
    return (lanes)(((masks)high & set) | ((masks)low & ~set));
#endif
}

static inline lanes all(float value)
{
    return value - (lanes){0};
}

static inline float sum(lanes v)
{
    float part[LANES];
    *(lanes *)part = v;
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            part[i] += part[i + half];
    return part[0];
}

/* By gate, side and the other input: what the output gains when the input of that side goes from 0 to 1. */
#define GAINS(t00, t01, t10, t11) {{t10 - t00, t11 - t01}, {t01 - t00, t11 - t10}}
static const float GAIN[GATES][2][2] = {
    GAINS(0, 0, 0, 0), GAINS(0, 0, 0, 1), GAINS(0, 0, 1, 0), GAINS(0, 0, 1, 1), GAINS(0, 1, 0, 0), GAINS(0, 1, 0, 1),
    GAINS(0, 1, 1, 0), GAINS(0, 1, 1, 1), GAINS(1, 0, 0, 0), GAINS(1, 0, 0, 1), GAINS(1, 0, 1, 0), GAINS(1, 0, 1, 1),
    GAINS(1, 1, 0, 0), GAINS(1, 1, 0, 1), GAINS(1, 1, 1, 0), GAINS(1, 1, 1, 1)};

/* Neurons [first, last) of a layer. The gradient of their outputs is gathered from the neurons above that read them,
   or, where there are none above (users is NULL), taken from row n / group of `above`. It is written to `gradient`
   unless that is NULL; its sums over the images on which the inputs (a, b) were 00, 01, 10 and 11 give the gradient of
   the sixteen gates, `by_gates`, unless that is NULL. Rows of gradients are vectors of 16 images, `spans` of them.
     y: the words of this layer. above_*: of the layer above, whose gradient is row j / group of `above`. */
void backward(const uint32_t *x, const int64_t *wiring, const uint32_t *y, const uint8_t *above_gates,
              const int64_t *above_wiring, const int64_t *users, const int64_t *starts, const lanes *above,
              lanes *restrict gradient, float *restrict by_gates, size_t neurons, size_t above_neurons, size_t group,
              size_t words, size_t spans, size_t first, size_t last)
{
    for (size_t n = first; n < last; n++) {
        const lanes none = {0};
        lanes s00 = none, s01 = none, s10 = none, s11 = none;
        if (users && group == 1 && n + AHEAD < last)
            for (int64_t k = starts[n + AHEAD]; k < starts[n + AHEAD + 1]; k++) {
                const size_t j = (size_t)users[k] - ((size_t)users[k] >= above_neurons ? above_neurons : 0);
                for (size_t h = 0; h < spans; h++)
                    __builtin_prefetch(above + j * spans + h);
            }
        for (size_t h0 = 0; h0 < spans; h0 += TILE) {
            const size_t tile = spans - h0 < TILE ? spans - h0 : TILE, w0 = h0 / 2;
            lanes g[TILE] = {{0}};
            if (users) {
                for (int64_t k = starts[n]; k < starts[n + 1]; k++) {
                    const size_t side = (size_t)users[k] >= above_neurons;
                    const size_t j = (size_t)users[k] - side * above_neurons;
                    const uint32_t *beside = y + above_wiring[(1 - side) * above_neurons + j] * words + w0;
                    const lanes *source = above + (group == 1 ? j : j / group) * spans + h0;
                    const lanes low = all(GAIN[above_gates[j]][side][0]), high = all(GAIN[above_gates[j]][side][1]);
                    for (size_t h = 0; h < tile; h++)
                        g[h] += source[h] * where(beside[h / 2] >> LANES * (h % 2), high, low);
                }
            } else {
                for (size_t h = 0; h < tile; h++)
                    g[h] = above[n / group * spans + h0 + h];
            }
            if (gradient)
                for (size_t h = 0; h < tile; h++)
                    gradient[n * spans + h0 + h] = g[h];
            if (by_gates) {
                const uint32_t *a = x + wiring[n] * words + w0, *b = x + wiring[neurons + n] * words + w0;
                for (size_t h = 0; h < tile; h++) {
                    const uint32_t u = a[h / 2] >> LANES * (h % 2), v = b[h / 2] >> LANES * (h % 2);
                    s00 += where(~u & ~v, g[h], none);
                    s01 += where(~u & v, g[h], none);
                    s10 += where(u & ~v, g[h], none);
                    s11 += where(u & v, g[h], none);
                }
            }
        }
        if (by_gates) {
            const float t00 = sum(s00), t01 = sum(s01), t10 = sum(s10), t11 = sum(s11);
            for (int k = 0; k < GATES; k++)
                by_gates[GATES * n + k] = (k & 8 ? t00 : 0) + (k & 4 ? t01 : 0) + ((k & 2 ? t10 : 0) + (k & 1 ? t11 : 0));
        }
    }
}

/* ---- the choice of gates: drawn from softmax(l / tau_f), its gradient through softmax(l / tau_b) ---- */

/* To float32's rounding for x <= 0, down to the smallest number and 0 (Cephes' polynomial); written out so that
   compilers vectorise it. */
static inline float exponential(float x)
{
    union { float f; int32_t i; } shifted, first, second;
    x = x > -110.0f ? x : -110.0f;
    shifted.f = x * 1.44269504088896341f + 12582912.0f; /* 1.5 * 2^23: the last bits are the whole number */
    const int32_t n = shifted.i - 0x4B400000;
    const float whole = shifted.f - 12582912.0f;
    const float r = x - whole * 0.693359375f - whole * -2.12194440e-4f;
    float p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const int32_t half = n >> 1; /* 2^n in two factors, since it can be smaller than a normal number */
    first.i = (half + 127) << 23;
    second.i = (n - half + 127) << 23;
    return (p * (r * r) + r + 1.0f) * first.f * second.f;
}

/* Philox 4x32-10 (Salmon et al., 2011), key `seed`, counters from `first` on: of each its first two words as a number
   in [0, 1). */
static void uniform(uint64_t seed, uint64_t first, double *result)
{
    uint32_t a[BLOCK], b[BLOCK], c[BLOCK] = {0}, d[BLOCK] = {0};
    for (size_t n = 0; n < BLOCK; n++) {
        a[n] = (uint32_t)(first + n);
        b[n] = (uint32_t)((first + n) >> 32);
    }
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        for (size_t n = 0; n < BLOCK; n++) {
            const uint64_t even = (uint64_t)a[n] * 0xD2511F53u, odd = (uint64_t)c[n] * 0xCD9E8D57u;
            a[n] = (uint32_t)(odd >> 32) ^ b[n] ^ key0;
            b[n] = (uint32_t)odd;
            c[n] = (uint32_t)(even >> 32) ^ d[n] ^ key1;
            d[n] = (uint32_t)even;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (size_t n = 0; n < BLOCK; n++)
        result[n] = ((double)a[n] * 0x1p32 + (double)(b[n] & 0xFFFFF800u)) * 0x1p-64;
}

/* The logits of a block, gate by gate, less each neuron's largest; `largest` is NaN where a logit is. */
static void transposed(const float *logits, size_t many, float rows[GATES][BLOCK], float *largest)
{
    for (int k = 0; k < GATES; k++)
        for (size_t n = 0; n < BLOCK; n++)
            rows[k][n] = n < many ? logits[GATES * n + k] : 0.0f;
    for (size_t n = 0; n < BLOCK; n++)
        largest[n] = rows[0][n];
    for (int k = 1; k < GATES; k++)
        for (size_t n = 0; n < BLOCK; n++)
            largest[n] = rows[k][n] > largest[n] || rows[k][n] != rows[k][n] ? rows[k][n] : largest[n];
    for (int k = 0; k < GATES; k++)
        for (size_t n = 0; n < BLOCK; n++)
            rows[k][n] -= largest[n];
}

/* One-hot rows [neurons, 16]; blocks [first, last). tau_f 0 is the argmax, the first of equals. NaN where a neuron's
   logits are broken, zeros where all of them are -inf. */
void choose(const float *logits, float *restrict chosen, float tau_f, uint64_t seed, size_t neurons, size_t first,
            size_t last)
{
    for (size_t block = first; block < last; block++) {
        const size_t n0 = block * BLOCK, many = neurons - n0 < BLOCK ? neurons - n0 : BLOCK;
        float rows[GATES][BLOCK] __attribute__((aligned(64))), largest[BLOCK];
        double total[BLOCK] = {0}, below[BLOCK];
        double gate[BLOCK] = {0};
        transposed(logits + GATES * n0, many, rows, largest);
        if (tau_f > 0) {
            for (int k = 0; k < GATES; k++)
                for (size_t n = 0; n < BLOCK; n++)
                    rows[k][n] = exponential(rows[k][n] / tau_f);
            for (int k = 0; k < GATES; k++)
                for (size_t n = 0; n < BLOCK; n++)
                    total[n] += (double)rows[k][n];
            uniform(seed, n0, below);
            for (size_t n = 0; n < BLOCK; n++)
                below[n] *= total[n];
            for (int k = 0; k < GATES - 1; k++)
                for (size_t n = 0; n < BLOCK; n++) {
                    below[n] -= (double)rows[k][n];
                    gate[n] += below[n] >= 0 ? 1.0 : 0.0;
                }
        } else {
            for (int k = GATES - 1; k >= 0; k--)
                for (size_t n = 0; n < BLOCK; n++)
                    gate[n] = rows[k][n] == 0 ? k : gate[n];
        }
        for (size_t n = 0; n < many; n++) {
            const int index = largest[n] > -INFINITY ? (int)gate[n] : -1;
            const float other = largest[n] < INFINITY ? 0.0f : NAN;
            for (int k = 0; k < GATES; k++)
                chosen[GATES * (n0 + n) + k] = k == index ? 1.0f + other : other;
        }
    }
}

/* scale / tau_b p (g - p . g), p = softmax(l / tau_b), blocks [first, last). Gradients are taken relative to the
   largest gate's, so that where its share rounds to 1 nothing is lost in the difference. Zeros where all logits are
   -inf. */
void choose_backward(const float *logits, const float *by_gates, float *restrict result, float tau_b, float scale,
                     size_t neurons, size_t first, size_t last)
{
    for (size_t block = first; block < last; block++) {
        const size_t n0 = block * BLOCK, many = neurons - n0 < BLOCK ? neurons - n0 : BLOCK;
        float share[GATES][BLOCK] __attribute__((aligned(64))), grad[GATES][BLOCK] __attribute__((aligned(64)));
        float largest[BLOCK], of_largest[BLOCK] = {0}, total[BLOCK] = {0}, mean[BLOCK] = {0};
        transposed(logits + GATES * n0, many, share, largest);
        for (int k = 0; k < GATES; k++)
            for (size_t n = 0; n < BLOCK; n++)
                grad[k][n] = n < many ? by_gates[GATES * (n0 + n) + k] : 0.0f;
        for (int k = 0; k < GATES; k++)
            for (size_t n = 0; n < BLOCK; n++)
                of_largest[n] = share[k][n] == 0 ? grad[k][n] : of_largest[n];
        for (int k = 0; k < GATES; k++)
            for (size_t n = 0; n < BLOCK; n++) {
                grad[k][n] -= of_largest[n];
                share[k][n] = exponential(share[k][n] / tau_b);
                total[n] += share[k][n];
                mean[n] += share[k][n] * grad[k][n];
            }
        for (size_t n = 0; n < BLOCK; n++) {
            const int empty = largest[n] == -INFINITY;
            mean[n] = empty ? 0.0f : mean[n] / total[n];
            total[n] = empty ? 0.0f : isfinite(largest[n]) ? scale / (total[n] * tau_b) : NAN;
        }
        for (size_t n = 0; n < many; n++)
            for (int k = 0; k < GATES; k++)
                result[GATES * (n0 + n) + k] = share[k][n] * total[n] * (grad[k][n] - mean[n]);
    }
}
