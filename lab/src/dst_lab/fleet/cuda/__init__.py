"""The fleet's step on CUDA, in Triton. What each kernel computes is written plainly in the folder above."""
