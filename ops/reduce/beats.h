#pragma once
// The order of ArgMax, also used by pooling and Hardmax.

#include "base/cuda/host_device.h"

namespace lenslet {

/// Does `x` replace the earlier `best` as the largest (least) so far? NaN beats any number; the first of equals stays.
template <bool largest = true, typename T>
LENSLET_HOST_DEVICE bool beats(T x, T best) {
  // "Not less-or-equal" includes NaN: no slower than the plain comparison.
  return !(largest ? x <= best : x >= best) && best == best;
}

}  // namespace lenslet
