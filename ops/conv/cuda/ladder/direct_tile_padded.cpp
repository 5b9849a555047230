// The third step towards direct_tile (../direct_tile.cu), kept so that the last one can be measured.
//
// direct_tile_padded: a block reads its input tile once into shared memory (threads of direct_block read their windows
// through the caches), and a thread keeps four neighbouring outputs of a group of filters in registers. x is explicitly
// padded, which reads and writes the whole input once more; direct_tile writes zeros while it copies.

#include "ops/conv/cuda/direct_tile.h"

namespace lenslet::cuda {
namespace {

class DirectTilePadded final : public DirectTile {
 public:
  std::string_view name() const override { return "direct_tile_padded"; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (!p.padded()) return "no pads: the same as direct_tile";
    return DirectTile::refuse(p, target);
  }
  ConvCandidate candidate_of(const ConvProblem& p, const direct_tile_sizes::Tiling& tiling,
                             const Target& target) const override {
    ConvCandidate candidate = DirectTile::candidate_of(p, tiling, target);
    candidate.explicit_padding = true;
    return candidate;
  }
};

}  // namespace

const Kernel& conv_direct_tile_padded() {
  static const DirectTilePadded algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
