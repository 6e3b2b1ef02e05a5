"""A codebook's choice, its gradient and its distribution, fused, in Triton."""
