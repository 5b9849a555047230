#pragma once
// What follows products behind moves and Concats goes into the products.

#include "runtime/passes/edit.h"

namespace lenslet {

/// Folds `node`, if it computes an affine of channels, axis 1 (affine_of) or the last of tokens [N,L,C], into the
/// products that make its input: behind Transposes, views that leave the channels' axis alone, and Concats of it, each
/// read by nothing else. The moves take `node`'s place. False and no change if something else makes a part of the
/// input.
bool fold_affine_behind_moves(GraphEdit& edit, NodeId node);

/// Likewise an activation with constant bounds, behind at least one Concat along any axis; also into what has an
/// activation alone (normalizations).
void merge_activation_behind_concats(GraphEdit& edit, NodeId node);

}  // namespace lenslet
