/* A circuit of two-input gates, run on LANES * 64 images at once: image i is bit i % 64 of lane i / 64 of a word. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__GNUC__)
#ifndef LANES
#define LANES 8
#endif
typedef uint64_t word __attribute__((vector_size(8 * LANES), may_alias));
#else
#undef LANES
#define LANES 1
typedef uint64_t word;
#endif
#define BLOCK (64 * LANES)
#define PLANES 32
/* Between the columns of packed images: a little more than a power of two, for the sake of caches. */
#define STRIDE ((size_t)BLOCK + 8)
#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif

/* Trees of gates over the windows of images, and the OR of neighbouring positions; a dense layer has one position. */
typedef struct {
    uint32_t trees, leaves, height, width, kernel, padding, pool, rows, columns;
    const uint8_t *gates;   /* [trees][leaves - 1]: level by level, the root last */
    const uint32_t *wiring; /* [trees][leaves]: (channel * kernel + row) * kernel + column */
} layer;

typedef struct {
    uint32_t inputs; /* they are in slots 0 .. inputs - 1 at first */
    uint32_t slots;
    uint32_t runs;            /* stretches of equal gates */
    uint32_t groups;          /* numbers per image */
    uint32_t bits;            /* outputs per number */
    uint32_t binary;          /* 1: the outputs are the number's bits, lowest first; 0: they are counted */
    uint32_t layers;          /* instead of runs, each behind the one before it in the slots */
    const uint32_t *run;      /* [runs][2]: gate, how many */
    const uint32_t *wires;    /* [gates][3]: slots of left, right and output */
    const uint32_t *outputs;  /* [groups][bits]: slots */
    const layer *layer;
} circuit;

/* Bit i is byte i; bytes other than 0 and 1 show in *seen. */
static uint64_t bits_of_bytes(const uint8_t *bytes, size_t count, uint8_t *seen)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < count; i++) {
        mask |= (uint64_t)(bytes[i] & 1) << i;
        *seen |= bytes[i];
    }
    return mask;
}

#if defined(__AVX512BW__)
static void pack_image(const uint8_t *image, const uint8_t *next, size_t inputs, uint64_t *packed, uint8_t *seen)
{
    size_t full = inputs / 64;
    __m512i any = _mm512_setzero_si512();
    for (size_t i = 0; i < full; i++) {
        __m512i bytes = _mm512_loadu_si512((const void *)(image + 64 * i));
        FETCH(next + 64 * i);
        any = _mm512_or_si512(any, bytes);
        packed[i * STRIDE] = _mm512_test_epi8_mask(bytes, bytes);
    }
    if (_mm512_test_epi8_mask(any, _mm512_set1_epi8((char)0xfe)))
        *seen = 2;
    if (inputs % 64)
        packed[full * STRIDE] = bits_of_bytes(image + 64 * full, inputs % 64, seen);
}
#elif defined(__SSE2__)
static void pack_image(const uint8_t *image, const uint8_t *next, size_t inputs, uint64_t *packed, uint8_t *seen)
{
    size_t full = inputs / 64;
    __m128i any = _mm_setzero_si128();
    for (size_t i = 0; i < full; i++) {
        uint64_t mask = 0;
        FETCH(next + 64 * i);
        for (int part = 0; part < 4; part++) {
            __m128i bytes = _mm_loadu_si128((const void *)(image + 64 * i + 16 * part));
            any = _mm_or_si128(any, bytes);
            mask |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_slli_epi16(bytes, 7)) << 16 * part;
        }
        packed[i * STRIDE] = mask;
    }
    uint8_t bytes[16];
    _mm_storeu_si128((void *)bytes, any);
    for (int i = 0; i < 16; i++)
        *seen |= bytes[i];
    if (inputs % 64)
        packed[full * STRIDE] = bits_of_bytes(image + 64 * full, inputs % 64, seen);
}
#else
static void pack_image(const uint8_t *image, const uint8_t *next, size_t inputs, uint64_t *packed, uint8_t *seen)
{
    (void)next;
    for (size_t i = 0; i < inputs; i += 64)
        packed[i / 64 * STRIDE] = bits_of_bytes(image + i, inputs - i < 64 ? inputs - i : 64, seen);
}
#endif

/* Lane by lane 64 words as a square of bits: swap its quarters off the diagonal, then those of each quarter, and so on. */
static void transpose(word *square)
{
    uint64_t mask = 0x00000000ffffffffu;
    for (int half = 32; half; half >>= 1, mask ^= mask << half)
        for (int start = 0; start < 64; start += 2 * half)
            for (int i = start; i < start + half; i++) {
                word change = (square[i] >> half ^ square[i + half]) & mask;
                square[i + half] ^= change;
                square[i] ^= change << half;
            }
}

/* Bytes [images][inputs] into the words of the inputs; `packed` is room for [inputs / 64] columns. */
static void load(const circuit *c, const uint8_t *bytes, size_t images, uint64_t *packed, word *slot, uint8_t *seen)
{
    size_t width = ((size_t)c->inputs + 63) / 64;
    for (size_t i = 0; i < BLOCK; i++) {
        uint64_t *place = packed + i % 64 * LANES + i / 64; /* neighbours in a word are 64 images apart */
        if (i < images) {
            const uint8_t *image = bytes + i * c->inputs, *next = i + 1 < images ? image + c->inputs : image;
            pack_image(image, next, c->inputs, place, seen);
        } else
            for (size_t column = 0; column < width; column++)
                place[column * STRIDE] = 0;
    }
    for (size_t column = 0; column < width; column++) {
        word square[64];
        size_t rows = c->inputs - 64 * column < 64 ? c->inputs - 64 * column : 64;
        memcpy(square, packed + column * STRIDE, sizeof square);
        transpose(square);
        memcpy(slot + 64 * column, square, rows * sizeof(word));
    }
}

#define EACH(expression)                                                                                             \
    for (; n; n--, w += 3) {                                                                                         \
        word a = slot[w[0]], b = slot[w[1]];                                                                         \
        (void)a, (void)b;                                                                                            \
        slot[w[2]] = (expression);                                                                                   \
    }                                                                                                                \
    break

static void evaluate(const circuit *c, word *slot)
{
    const uint32_t *w = c->wires;
    for (uint32_t r = 0; r < c->runs; r++) {
        uint32_t n = c->run[2 * r + 1];
        switch (c->run[2 * r]) {
        case 0: EACH(a ^ a);
        case 1: EACH(a & b);
        case 2: EACH(a & ~b);
        case 3: EACH(a);
        case 4: EACH(~a & b);
        case 5: EACH(b);
        case 6: EACH(a ^ b);
        case 7: EACH(a | b);
        case 8: EACH(~(a | b));
        case 9: EACH(~(a ^ b));
        case 10: EACH(~b);
        case 11: EACH(a | ~b);
        case 12: EACH(~a);
        case 13: EACH(~a | b);
        case 14: EACH(~(a & b));
        default: EACH(~(a ^ a));
        }
    }
}

/* One tree of a layer at all positions: a gate is c0 ^ c1 a ^ c2 b ^ c3 a b, with masks for c0 to c3. */
static void evaluate_tree(const layer *l, uint32_t tree, const word *x, word *y)
{
    const uint32_t leaves = l->leaves, window = l->kernel * l->kernel;
    const uint32_t *wiring = l->wiring + (size_t)tree * leaves;
    const uint8_t *gates = l->gates + (size_t)tree * (leaves - 1);
    const word zero = {0};
    word mask[4 * 64], value[2 * 64];
    int64_t base[64], row[64], column[64];
    for (uint32_t i = 0; i + 1 < leaves; i++) {
        const uint32_t g = gates[i], t00 = g >> 3 & 1, t01 = g >> 2 & 1, t10 = g >> 1 & 1, t11 = g & 1;
        mask[4 * i] = t00 ? ~zero : zero;
        mask[4 * i + 1] = t00 ^ t10 ? ~zero : zero;
        mask[4 * i + 2] = t00 ^ t01 ? ~zero : zero;
        mask[4 * i + 3] = t00 ^ t01 ^ t10 ^ t11 ? ~zero : zero;
    }
    for (uint32_t i = 0; i < leaves; i++) {
        base[i] = (int64_t)(wiring[i] / window) * l->height * l->width;
        row[i] = (int64_t)(wiring[i] % window / l->kernel) - l->padding;
        column[i] = (int64_t)(wiring[i] % l->kernel) - l->padding;
    }
    for (uint32_t p = 0; p < l->rows * l->columns; p++) {
        y[p] = zero;
        for (uint32_t q = 0; q < l->pool * l->pool; q++) {
            const int64_t top = p / l->columns * l->pool + q / l->pool, left = p % l->columns * l->pool + q % l->pool;
            for (uint32_t i = 0; i < leaves; i++) {
                const int64_t h = top + row[i], w = left + column[i];
                const int inside = h >= 0 && h < l->height && w >= 0 && w < l->width;
                value[i] = inside ? x[base[i] + h * l->width + w] : zero;
            }
            for (uint32_t i = 0; i + 1 < leaves; i++) {
                const word a = value[2 * i], b = value[2 * i + 1], *c = mask + 4 * i;
                value[leaves + i] = c[0] ^ (c[1] & a) ^ (b & (c[2] ^ (c[3] & a)));
            }
            y[p] |= value[2 * leaves - 2];
        }
    }
}

static void evaluate_layers(const circuit *c, word *slot)
{
    const word *x = slot;
    word *y = slot + c->inputs;
    for (uint32_t k = 0; k < c->layers; k++) {
        const layer *l = c->layer + k;
        const size_t positions = (size_t)l->rows * l->columns;
        for (uint32_t tree = 0; tree < l->trees; tree++)
            evaluate_tree(l, tree, x, y + tree * positions);
        x = y;
        y += l->trees * positions;
    }
}

#define ADD(total, carry, x, y, z)                                                                                   \
    do {                                                                                                             \
        word x_ = (x), y_ = (y), z_ = (z), either_ = x_ ^ y_;                                                        \
        (total) = either_ ^ z_;                                                                                      \
        (carry) = (x_ & y_) | (either_ & z_);                                                                        \
    } while (0)

/* How many of the outputs are 1, image by image, as binary numbers in planes; returns how many planes. */
static unsigned count(const uint32_t *output, uint32_t bits, const word *slot, word *plane)
{
    const word zero = {0};
    word ones = zero, twos = zero, fours = zero, twos_a, twos_b, fours_a, fours_b, carry;
    unsigned planes = 3;
    for (uint32_t i = 0; i < bits; i += 8) {
        word x[8];
        for (uint32_t k = 0; k < 8; k++)
            x[k] = i + k < bits ? slot[output[i + k]] : zero;
        ADD(ones, twos_a, ones, x[0], x[1]);
        ADD(ones, twos_b, ones, x[2], x[3]);
        ADD(twos, fours_a, twos, twos_a, twos_b);
        ADD(ones, twos_a, ones, x[4], x[5]);
        ADD(ones, twos_b, ones, x[6], x[7]);
        ADD(twos, fours_b, twos, twos_a, twos_b);
        ADD(fours, carry, fours, fours_a, fours_b);
        /* i / 8 + 1 eights have come in by now, which says how far a carry can go. */
        uint32_t eights = i / 8 + 1;
        for (unsigned k = 3; eights >> (k - 3); k++) {
            if (k == planes) {
                plane[planes++] = carry;
                break;
            }
            word kept = plane[k];
            plane[k] = kept ^ carry;
            carry = kept & carry;
        }
    }
    plane[0] = ones;
    plane[1] = twos;
    plane[2] = fours;
    return planes;
}

/* The numbers in planes into numbers[image * STRIDE]. */
static void unpack(const word *plane, unsigned planes, size_t images, uint32_t *numbers, size_t stride)
{
    for (size_t lane = 0; 64 * lane < images; lane++) {
        uint32_t number[64] = {0};
        for (unsigned k = 0; k < planes; k++) {
            uint64_t bits = ((const uint64_t *)(plane + k))[lane];
            for (unsigned i = 0; i < 64; i++)
                number[i] |= (uint32_t)(bits >> i & 1) << k;
        }
        for (size_t i = 0; i < 64 && 64 * lane + i < images; i++)
            numbers[(64 * lane + i) * stride] = number[i];
    }
}

/* Bytes [images][inputs] of 0 and 1 into numbers [images][groups]. 0: done; 1: another byte; 2: no memory. */
static int run_circuit(const circuit *c, const uint8_t *bytes, size_t images, uint32_t *numbers)
{
    size_t width = ((size_t)c->inputs + 63) / 64;
    uint64_t *packed = malloc(width * STRIDE * sizeof *packed);
    unsigned char *room = malloc(((size_t)c->slots + 1) * sizeof(word));
    uint8_t seen = 0;
    if (packed == NULL || room == NULL) {
        free(packed);
        free(room);
        return 2;
    }
    word *slot = (word *)(room + (sizeof(word) - (uintptr_t)room % sizeof(word)) % sizeof(word));
    word plane[PLANES];
    for (size_t first = 0; first < images && seen < 2; first += BLOCK) {
        size_t now = images - first < BLOCK ? images - first : BLOCK;
        load(c, bytes + first * c->inputs, now, packed, slot, &seen);
        evaluate(c, slot);
        evaluate_layers(c, slot);
        for (uint32_t g = 0; g < c->groups; g++) {
            const uint32_t *output = c->outputs + (size_t)g * c->bits;
            unsigned planes = c->bits;
            if (c->binary || c->bits == 1)
                for (uint32_t k = 0; k < c->bits; k++)
                    plane[k] = slot[output[k]];
            else
                planes = count(output, c->bits, slot, plane);
            unpack(plane, planes, now, numbers + first * c->groups + g, c->groups);
        }
    }
    free(packed);
    free(room);
    return seen > 1;
}
