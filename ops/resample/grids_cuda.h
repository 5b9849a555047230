#pragma once
// Launchers of GridSample and AffineGrid.

#include "ops/resample/affine_grid.h"
#include "ops/resample/grid_sample.h"

namespace lenslet::cuda {

struct Context;

/// Device addresses; `y` overlaps nothing.
void grid_sample(const Context& context, const GridSampleRule& rule, const GridSampleShape& shape, const float* x,
                 const float* grid, float* y);
void affine_grid(const Context& context, const AffineGridShape& shape, const float* theta, float* grid);

}  // namespace lenslet::cuda
