"""Networks of logic gates in packed bits: 32 images of a neuron to a word. `on_cuda` is in Triton, `on_cpu` in C; the
functions have the same names and do the same.

    pack        [images, in] of float32, bool or uint8 to words [in, words]; None where a value is neither 0 nor 1
    forward     of words x, one-hot rows `chosen` [out, 16] and their wiring [2, out]: a layer's words, and its gates as
                numbers. `broken`, one per run, is set for runs with rows that are not one-hot: their results are NaN
    count       how many neurons of each class's group are 1, over tau: [images, classes], with zeros for the counts
    unpack      the words as 0.0 and 1.0, [images, neurons]
    backward    of a layer with input words x and output words y: the gradient of its gates to `by_gates`, that of its
                outputs to `gradient` where the layer below needs it. Both are made of `above`, rows of the layer
                above's, `group` of its neurons per row, and `over`, its gates and wiring and who reads what of it; of
                the last layer's own where `over` is None. The input has neither x nor gates

Rows of gradients are as long as a multiple of SPAN images.
"""
