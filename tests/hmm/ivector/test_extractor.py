"""The extractor's file: written and read again, binary and text, and what is no extractor."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.ivector.extractor import IvectorExtractor, packed, unpacked


@pytest.mark.parametrize("binary", [True, False])
def test_what_is_written_is_read_again(extractor: IvectorExtractor, tmp_path: Path, binary: bool) -> None:
    extractor.write(tmp_path / "final.ie", binary)
    read = IvectorExtractor.read(tmp_path / "final.ie")
    for name in ("weights", "projections", "precisions", "prior_offset", "linear_maps", "quadratic_maps"):
        np.testing.assert_allclose(getattr(read, name), getattr(extractor, name), rtol=0 if binary else 3e-6, atol=0 if binary else 1e-5)


def test_the_bytes_are_kaldis(tmp_path: Path) -> None:
    """One Gaussian of dimension 1, i-vectors of dimension 2, written out by hand from Kaldi's IvectorExtractor::Write."""
    IvectorExtractor(np.array([1.0]), np.array([[[2.0, 3.0]]]), np.array([[[4.0]]]), 5.0).write(tmp_path / "final.ie")
    sized = struct.Struct("<bi")
    assert (tmp_path / "final.ie").read_bytes() == b"".join([
        b"\0B<IvectorExtractor> <w> DM ", sized.pack(4, 0), sized.pack(4, 0), b"<w_vec> DV ", sized.pack(4, 1), struct.pack("<d", 1.0),
        b"<M> ", sized.pack(4, 1), b"DM ", sized.pack(4, 1), sized.pack(4, 2), struct.pack("<dd", 2.0, 3.0), b"<SigmaInv> DP ",
        sized.pack(4, 1), struct.pack("<d", 4.0), b"<IvectorOffset> ", struct.pack("<bd", 8, 5.0), b"</IvectorExtractor> "])


def test_symmetric_matrices_are_packed_row_by_row() -> None:
    matrix = np.array([[1.0, 2, 4], [2, 3, 5], [4, 5, 6]])
    assert packed(matrix).tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(unpacked(packed(matrix), 3), matrix)


def test_maps_in_single_precision_are_those_in_double() -> None:
    rng, (gaussians, dim) = np.random.default_rng(3), (37, 6)  # more Gaussians than are mapped at a time
    factors = rng.standard_normal((gaussians, dim, dim))
    extractor = IvectorExtractor(np.full(gaussians, 1 / gaussians), rng.standard_normal((gaussians, dim, 4)),
                                 factors @ factors.transpose(0, 2, 1), 5.0)
    linear, quadratic = extractor.single_precision_maps()
    np.testing.assert_array_equal(linear, extractor.linear_maps.astype(np.float32))
    np.testing.assert_array_equal(quadratic, extractor.quadratic_maps.astype(np.float32))


def test_a_new_extractor_has_the_ubms_gaussians_at_the_priors_mean(ubm: AmDiagGmm) -> None:
    made = IvectorExtractor.initial(ubm, 6, np.random.default_rng(0))
    mean = np.zeros(6)
    mean[0] = made.prior_offset
    np.testing.assert_allclose(made.projections @ mean, ubm.means_invvars / ubm.inv_vars, rtol=1e-5)
    np.testing.assert_allclose(np.diagonal(made.precisions, axis1=1, axis2=2), ubm.inv_vars, rtol=1e-6)


def test_what_is_no_extractor_is_named(extractor: IvectorExtractor, ubm: AmDiagGmm, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--ivector-dim must be at least 2"):
        IvectorExtractor.initial(ubm, 1, np.random.default_rng(0))
    extractor.write(tmp_path / "final.ie")
    data = (tmp_path / "final.ie").read_bytes()
    for number, (damaged, said) in enumerate([(data[:-40], "final.ie"), (data.replace(b"<M> ", b"<N> "), "<M>"),
                                              (data.replace(struct.pack("<bd", 8, 5.0), struct.pack("<bd", 8, np.nan)), "finite")]):
        (tmp_path / f"{number}.final.ie").write_bytes(damaged)
        with pytest.raises(UserError, match=said):
            IvectorExtractor.read(tmp_path / f"{number}.final.ie")
    other = AmDiagGmm(np.array([0, 2]), ubm.weights[:2], ubm.means_invvars[:2], ubm.inv_vars[:2])
    with pytest.raises(UserError, match=r"final.ie has 5 Gaussians of dimension 3, final.dubm 2 of 3"):
        extractor.check_ubm(other, "exp/extractor")


def test_weights_that_depend_on_the_ivector_are_refused(tmp_path: Path) -> None:
    (tmp_path / "final.ie").write_text("<IvectorExtractor> <w> [\n 1 2 ]\n<w_vec> [ ]\n")
    with pytest.raises(UserError, match="--use-weights=false"):
        IvectorExtractor.read(tmp_path / "final.ie")
