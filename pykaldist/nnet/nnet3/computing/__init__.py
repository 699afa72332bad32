"""What components compute: `elementwise`, `convolution`, `batchnorm`, `orthonormal`; in training `chunks`, `masks`, `more_layers`."""
