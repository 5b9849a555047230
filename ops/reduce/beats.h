#pragma once
// The order of ArgMax, which pooling and Hardmax follow, too.

#include "base/cuda/host_device.h"

namespace lenslet {

/// Does `x` take the place of `best`, which stands before it, as the largest so far (or the least)? NaN is beyond any
/// number; the first of equals stays.
template <bool largest = true, typename T>
LENSLET_HOST_DEVICE bool beats(T x, T best) {
  // Not less-or-equal rather than greater or NaN: no slower than the plain comparison.
  return !(largest ? x <= best : x >= best) && best == best;
}

}  // namespace lenslet
