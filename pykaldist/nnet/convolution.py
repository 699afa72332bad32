"""The components of CNNs: convolution over time and frequency, pooling in frequency, and batch normalisation.

Abdel-Hamid et al. (2012/2014), Sainath et al. (2013). A row is an image of T frames x F bands with C channels. The network's inputs have
it as the splice of feature vectors, each of C streams (statics, deltas, ...) of F bands: value (t, c, f) at place (t C + c) F + f. Inside,
channels are neighbours: (t, f, c) at (t F + f) C + c, which is what the product below gives.

Convolution: a filter sees a patch of `time` frames x all channels x `bands` bands, at each place where it fits,
    y(t', f', m) = b_m + sum over t, c, f of W(m; t, c, f) x(t' + t, c, f' + f).
The patches of all rows are copied beside each other, (n T' F', time C bands), and the convolution is one affine map of them: a product for
each of forward, dx and gradient, and NG-SGD takes its natural gradient as of any affine map, with a patch for a frame. dx is gathered from
the patches' derivatives by as many additions as a patch has places. Filters with time = T and C = 1 inside are those of nnet1's
<ConvolutionalComponent>, patch by patch.

Batch normalisation (Ioffe & Szegedy, 2015): each of D features, over the rows (and places) of the minibatch in training,
    y = gamma (x - mean) / sqrt(var + 1e-5) + beta;
in use, by running means of x and x^2. These two lie in the flat buffer behind gamma and beta, as parameters that follow the data
(`ParameterSpec.statistic`), so that workers average, exchange and save them with the model. Being moments, not variances, their mean over
workers is the moment of all workers' data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pykaldist.nnet.components import AffineMap, Component, GradientRule, ParameterSpec, Pass, add_up
from pykaldist.nnet.gemm import affine, product, root_

EPSILON = 1e-5  # of a variance


class Convolution(Component):
    """Convolution over time and frequency of an image with `shape`: frames, bands, channels.

    `outer`: it is the network's input, with its bands as neighbours.
    """

    def __init__(self, shape: tuple[int, int, int], time: int, bands: int, maps: int, outer: bool) -> None:
        frames, width, channels = shape
        if not 0 < time <= frames or not 0 < bands <= width:
            raise ValueError(f"filters of {time} x {bands} over {frames} x {width}")
        self.shape, self.time, self.bands, self.outer = shape, time, bands, outer
        self.output_shape = (frames - time + 1, width - bands + 1, maps)
        self.places = self.output_shape[0] * self.output_shape[1]
        super().__init__(frames * width * channels, self.places * maps)
        self.map = AffineMap(time * channels * bands, maps)
        self.maps, self.memory_dim = [self.map], self.places * self.map.input_dim
        self.flops = 2 * self.places * self.map.input_dim * maps

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("weight", (self.map.output_dim, self.map.input_dim)), ParameterSpec("bias", (self.map.output_dim,))]

    def bind(self, params: list[Tensor]) -> None:
        self.weight, self.bias = params

    def _image(self, x: Tensor) -> Tensor:
        """View x (n, input_dim) as images (n, frames, channels, bands)."""
        frames, width, channels = self.shape
        return x.view(-1, frames, channels, width) if self.outer else x.view(-1, frames, width, channels).transpose(2, 3)

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        windows = self._image(x).unfold(1, self.time, 1).unfold(3, self.bands, 1)  # n, T', C, F', time, bands
        rows = len(x) * self.places
        patches = run.memory[: rows * self.map.input_dim].view(len(x), *self.output_shape[:2], self.time, self.shape[2], self.bands)
        patches.copy_(windows.permute(0, 1, 3, 4, 2, 5))
        affine(patches.view(rows, -1), self.weight, self.bias, y.view(rows, -1))

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        rows, (high, wide, maps) = len(x) * self.places, self.output_shape
        patches, dy = run.memory[: rows * self.map.input_dim].view(rows, -1), dy.view(rows, maps)
        if dx is not None:
            back = product(dy, self.weight, dy.new_empty(rows, self.weight.shape[1]))
            back = back.view(len(x), high, wide, self.time, self.shape[2], self.bands)
            image = self._image(dx.zero_())
            for t in range(self.time):
                for f in range(self.bands):
                    image[:, t : t + high, :, f : f + wide] += back[:, :, :, t, :, f].transpose(2, 3)
        weight, bias = grads
        rule(self.map, patches, dy, weight, bias, beta)


class MaxPooling(Component):
    """Max-pooling in frequency: the largest of each `size` neighbouring bands, which do not overlap.

    Bands that are left over at the upper end are left out.
    """

    def __init__(self, shape: tuple[int, int, int], size: int) -> None:
        frames, width, maps = shape
        if not 0 < size <= width:
            raise ValueError(f"pools of {size} bands of {width}")
        self.shape, self.size = shape, size
        self.output_shape = (frames, width // size, maps)
        super().__init__(frames * width * maps, frames * (width // size) * maps)
        self.memory_dim = self.output_dim

    def specs(self) -> list[ParameterSpec]:
        return []

    def _pools(self, x: Tensor) -> Tensor:
        """View x as (n, frames, pools, size, maps)."""
        frames, width, maps = self.shape
        return x.view(len(x), frames, width, maps)[:, :, : self.output_shape[1] * self.size].unflatten(2, (-1, self.size))

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        first, *others = self._pools(x).unbind(3)
        largest = run.memory[: y.numel()].view(len(x), *self.output_shape).copy_(first)  # a nonlinearity may write over y
        for other in others:
            torch.maximum(largest, other, out=largest)
        y.copy_(largest.view_as(y))

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        """Send the derivative to the first of a pool's bands that has its largest value."""
        if dx is None:
            return
        if self.size * self.output_shape[1] < self.shape[1]:
            dx.zero_()
        shape = (len(x), *self.output_shape)
        largest, left = run.memory[: y.numel()].view(shape), dy.view(shape)
        for band, derivative in zip(self._pools(x).unbind(3), self._pools(dx).unbind(3), strict=True):
            chosen = band == largest
            torch.mul(left, chosen, out=derivative)
            left.masked_fill_(chosen, 0.0)


class BatchNorm(Component):
    """Batch normalisation of rows of `places` x `features`: each feature over rows and places.

    Its parameters are gamma, beta, then the running means of x and x^2.
    """

    wide = "batch normalisation"

    def __init__(self, features: int, places: int = 1) -> None:
        super().__init__(places * features, places * features)
        self.features, self.places, self.flops = features, places, 2 * places * features

    def specs(self) -> list[ParameterSpec]:
        size = (self.features,)
        return [ParameterSpec("gamma", size), ParameterSpec("beta", size), ParameterSpec("mean", size, statistic=True),
                ParameterSpec("mean_square", size, statistic=True)]

    def bind(self, params: list[Tensor]) -> None:
        self.gamma, self.beta, self.mean, self.mean_square = params

    @staticmethod
    def start(params: list[Tensor]) -> None:
        """Set the parameters to those of normalisation alone, and of features that have it already."""
        for param, value in zip(params, (1.0, 0.0, 0.0, 1.0), strict=True):
            param.fill_(value)

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        x, y = x.view(-1, self.features), y.view(-1, self.features)
        if run.training:
            variance, self._mean = torch.var_mean(x, 0, correction=0)
            self._deviation = root_(variance.add_(EPSILON))
        else:
            self._mean, self._deviation = self.mean, self._running_deviation()
        scale = self.gamma / self._deviation
        torch.addcmul(self.beta.addcmul(self._mean, scale, value=-1.0), x, scale, out=y)

    def _running_deviation(self) -> Tensor:
        return root_(self.mean_square.addcmul(self.mean, self.mean, value=-1.0).clamp_min_(0.0).add_(EPSILON))

    def in_use(self) -> tuple[Tensor, Tensor]:
        """The scale and the shift of each feature where nothing is trained."""
        scale = self.gamma / self._running_deviation()
        return scale, self.beta.addcmul(self.mean, scale, value=-1.0)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        """As every component's; the statistics' places in the gradient take sums over frames.

        That of the mean is the sum over frames of a frame's mean over places; that of squares likewise.
        """
        frames, x, dy = len(x), x.view(-1, self.features), dy.view(-1, self.features)
        normal = (x - self._mean).div_(self._deviation)
        d_beta, d_gamma = dy.sum(0), torch.einsum("nd,nd->d", dy, normal)
        if dx is not None:
            scale = self.gamma / self._deviation
            torch.sub(dy, d_beta / len(x), out=dx.view_as(dy)).view_as(dy).sub_(normal.mul_(d_gamma / len(x))).mul_(scale)
        for gradient, own in zip(grads[:2], (d_gamma, d_beta), strict=True):
            add_up(gradient, own, beta)
        grads[2].copy_(self._mean).mul_(frames)
        grads[3].copy_(self._deviation.square().sub_(EPSILON).addcmul_(self._mean, self._mean)).mul_(frames)
