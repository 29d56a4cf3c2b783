"""Whether kernels compute on a device what they should: each on random inputs, against plain torch in float64."""
