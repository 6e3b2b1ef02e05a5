/* A layer of trees of gates over windows, and the pool behind it. Values lie [channels][height][width][images], the
   images padded to whole spans of LANES; a thread takes some spans, so that no two write to the same place. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef LANES
#define LANES 16
#endif
#define LEAVES 64 /* of the deepest tree */
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    int64_t trees, height, width, images, kernel, padding, pool, rows, columns, group;
} layer;

typedef float lanes[LANES];
static const lanes ZEROS = {0};

/* Where a leaf looks: the first value of its channel, and how far from the window's corner in the padded image. */
typedef struct {
    int64_t channel, row, column;
} leaf_of;

INLINE void read_leaves(const layer *l, const int64_t *wiring, leaf_of *leaf, const int leaves)
{
    const int64_t window = l->kernel * l->kernel;
    for (int i = 0; i < leaves; i++) {
        leaf[i].channel = wiring[i] / window * l->height * l->width;
        leaf[i].row = wiring[i] % window / l->kernel - l->padding;
        leaf[i].column = wiring[i] % window % l->kernel - l->padding;
    }
}

/* The place of a leaf in the images, for a window at this row and column; -1 in the padding. */
INLINE int64_t place_of(const layer *l, const leaf_of *leaf, int64_t row, int64_t column)
{
    const int64_t h = row + leaf->row, w = column + leaf->column;
    return h < 0 || h >= l->height || w < 0 || w >= l->width ? -1 : leaf->channel + h * l->width + w;
}

/* The nodes above the leaves, which are values[0 .. 2^depth - 1]; the root is the last. */
INLINE void climb(const float *c, lanes *values, const int depth)
{
    const int nodes = (1 << depth) - 1;
    for (int node = 0; node < nodes; node++) {
        const float *u = values[2 * node], *v = values[2 * node + 1];
        float *out = values[nodes + 1 + node];
        for (int i = 0; i < LANES; i++)
            out[i] = c[4 * node] + c[4 * node + 1] * u[i] + v[i] * (c[4 * node + 2] + c[4 * node + 3] * u[i]);
    }
}

INLINE void forward_of(const float *restrict x, const float *restrict c, const int64_t *wiring, float *restrict y,
                       uint8_t *restrict taken, const layer *l, int64_t first, int64_t last, const int depth)
{
    const int leaves = 1 << depth;
    lanes values[2 * LEAVES];
    leaf_of leaf[LEAVES];
    for (int64_t span = first; span < last; span++)
        for (int64_t tree = 0; tree < l->trees; tree++) {
            read_leaves(l, wiring + tree * leaves, leaf, leaves);
            for (int64_t p = 0; p < l->rows * l->columns; p++) {
                const int64_t at = (tree * l->rows * l->columns + p) * l->images + span * LANES;
                for (int64_t q = 0; q < l->pool * l->pool; q++) {
                    const int64_t row = p / l->columns * l->pool + q / l->pool;
                    const int64_t column = p % l->columns * l->pool + q % l->pool;
                    for (int i = 0; i < leaves; i++) {
                        const int64_t place = place_of(l, leaf + i, row, column);
                        memcpy(values[i], place < 0 ? ZEROS : x + place * l->images + span * LANES, sizeof(lanes));
                    }
                    climb(c + tree * (leaves - 1) * 4, values, depth);
                    const float *root = values[2 * leaves - 2];
                    for (int i = 0; i < LANES; i++) {
                        const int better = q == 0 || root[i] > y[at + i] || root[i] != root[i];
                        y[at + i] = better ? root[i] : y[at + i];
                        taken[at + i] = better ? (uint8_t)q : taken[at + i];
                    }
                }
            }
        }
}

/* From the gradients of the roots, in gradients[2 * leaves - 2], to those of all nodes and leaves; sums over images of
   g, g u, g v and g u v to `sums`. */
INLINE void descend(const float *c, lanes *values, lanes *gradients, lanes *sums, const int depth)
{
    const int nodes = (1 << depth) - 1;
    for (int node = nodes - 1; node >= 0; node--) {
        const float *u = values[2 * node], *v = values[2 * node + 1], *g = gradients[nodes + 1 + node];
        float *by_u = gradients[2 * node], *by_v = gradients[2 * node + 1];
        for (int i = 0; i < LANES; i++) {
            const float gu = g[i] * u[i];
            sums[4 * node][i] += g[i];
            sums[4 * node + 1][i] += gu;
            sums[4 * node + 2][i] += g[i] * v[i];
            sums[4 * node + 3][i] += gu * v[i];
            by_u[i] = g[i] * (c[4 * node + 1] + c[4 * node + 3] * v[i]);
            by_v[i] = g[i] * (c[4 * node + 2] + c[4 * node + 3] * u[i]);
        }
    }
}

INLINE int any(const float *g)
{
    int nonzero = 0;
    for (int i = 0; i < LANES; i++)
        nonzero |= g[i] != 0;
    return nonzero;
}

INLINE void backward_of(const float *restrict x, const float *restrict c, const int64_t *wiring, const uint8_t *taken,
                        const float *g, float *restrict by_x, float *restrict by_c, const layer *l, int64_t first,
                        int64_t last, const int depth)
{
    const int leaves = 1 << depth, nodes = leaves - 1, positions = (int)(l->pool * l->pool);
    lanes values[2 * LEAVES], gradients[2 * LEAVES], sums[4 * LEAVES];
    leaf_of leaf[LEAVES], at[256];
    for (int q = 0; q < positions; q++)
        at[q] = (leaf_of){0, q / l->pool, q % l->pool};
    for (int64_t tree = 0; tree < l->trees; tree++) {
        read_leaves(l, wiring + tree * leaves, leaf, leaves);
        memset(sums, 0, sizeof(lanes) * 4 * (size_t)nodes);
        for (int64_t span = first; span < last; span++)
            for (int64_t p = 0; p < l->rows * l->columns; p++) {
                const int64_t inside = l->rows * l->columns;
                const uint8_t *won = taken + (tree * inside + p) * l->images + span * LANES;
                const float *above = g + (tree / l->group * inside + p) * l->images + span * LANES;
                const int64_t row = p / l->columns * l->pool, column = p % l->columns * l->pool;
                if (!any(above))
                    continue;
                /* Each image's leaves at the position that won in it. */
                for (int j = 0; j < leaves; j++)
                    for (int q = 0; q < positions; q++) {
                        const int64_t place = place_of(l, leaf + j, row + at[q].row, column + at[q].column);
                        const float *there = place < 0 ? ZEROS : x + place * l->images + span * LANES;
                        for (int i = 0; i < LANES; i++)
                            values[j][i] = won[i] == q ? there[i] : values[j][i];
                    }
                climb(c + tree * nodes * 4, values, depth);
                memcpy(gradients[2 * leaves - 2], above, sizeof(lanes));
                descend(c + tree * nodes * 4, values, gradients, sums, depth);
                for (int j = 0; by_x && j < leaves; j++)
                    for (int q = 0; q < positions; q++) {
                        const int64_t place = place_of(l, leaf + j, row + at[q].row, column + at[q].column);
                        float *there = by_x + place * l->images + span * LANES;
                        for (int i = 0; place >= 0 && i < LANES; i++)
                            there[i] += won[i] == q ? gradients[j][i] : 0;
                    }
            }
        for (int sum = 0; sum < 4 * nodes; sum++)
            for (int i = 0; i < LANES; i++)
                by_c[tree * nodes * 4 + sum] += sums[sum][i];
    }
}

#define BY_DEPTH(call)     \
    switch (depth) {       \
    case 1: call(1) break; \
    case 2: call(2) break; \
    case 3: call(3) break; \
    case 4: call(4) break; \
    case 5: call(5) break; \
    case 6: call(6) break; \
    }

void forward(const float *x, const float *c, const int64_t *wiring, float *y, uint8_t *taken, const layer *l,
             int64_t depth, int64_t first, int64_t last)
{
#define FORWARD(d) forward_of(x, c, wiring, y, taken, l, first, last, d);
    BY_DEPTH(FORWARD)
}

void backward(const float *x, const float *c, const int64_t *wiring, const uint8_t *taken, const float *g, float *by_x,
              float *by_c, const layer *l, int64_t depth, int64_t first, int64_t last)
{
#define BACKWARD(d) backward_of(x, c, wiring, taken, g, by_x, by_c, l, first, last, d);
    BY_DEPTH(BACKWARD)
}
