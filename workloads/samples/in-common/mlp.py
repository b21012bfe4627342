"""A network of one hidden layer on the digits, as one vector of weights: what strategies of exchange send about.

64 inputs, a hidden layer with ReLU, 10 outputs, mean cross-entropy, plain gradient descent. All weights lie in one float32
vector, so that an exchange is of one block of memory; `views` shows it as matrices. NumPy only; the TensorFlow samples take
just the first weights and the sizes from here.
"""

import numpy as np
from digits import Floats, Whole

INPUTS, HIDDEN, OUTPUTS = 64, 128, 10
SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, OUTPUTS), (OUTPUTS,))
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)
"""Number of weights; 4 bytes each."""


def first_weights(seed: int) -> Floats:
    """Weights to begin with: He's initialisation (standard deviation sqrt(2 / inputs)), biases 0."""
    random = np.random.RandomState(seed)
    weights = np.zeros(SIZE, np.float32)
    for matrix in views(weights):
        if matrix.ndim == 2:
            matrix[:] = random.standard_normal(matrix.shape) * np.sqrt(2 / matrix.shape[0])
    return weights


def views(weights: Floats) -> list[Floats]:
    """The matrices and biases in a vector of weights, as views of its memory."""
    found, start = [], 0
    for shape in SHAPES:
        end = start + int(np.prod(shape))
        found.append(weights[start:end].reshape(shape))
        start = end
    return found


def outputs(weights: Floats, images: Floats) -> Floats:
    """What the network says of each image: one number per digit, before the softmax."""
    first, first_bias, second, second_bias = views(weights)
    hidden: Floats = np.maximum(images @ first + first_bias, 0) @ second + second_bias
    return hidden


def gradient_sum(weights: Floats, images: Floats, digits: Whole) -> tuple[Floats, float]:
    """Gradient of the cross-entropy summed over the images, as one vector, and that sum itself.

    A sum and not a mean, so that parts of a batch add up to the batch however it was cut.
    """
    first, first_bias, second, _ = views(weights)
    before = images @ first + first_bias
    hidden = np.maximum(before, 0)
    logits = outputs(weights, images)
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(digits))
    error = np.exp(logs)
    error[rows, digits] -= 1
    back = (error @ second.T) * (before > 0)
    gradient = np.empty(SIZE, np.float32)
    of_first, of_first_bias, of_second, of_second_bias = views(gradient)
    of_first[:], of_first_bias[:] = images.T @ back, back.sum(axis=0)
    of_second[:], of_second_bias[:] = hidden.T @ error, error.sum(axis=0)
    return gradient, float(-logs[rows, digits].sum())


def accuracy(weights: Floats, images: Floats, digits: Whole) -> float:
    """The share of images named rightly."""
    return float((outputs(weights, images).argmax(axis=1) == digits).mean())
