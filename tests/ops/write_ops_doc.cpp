// Writes docs/ops.md: the target update-ops-doc.

#include <cstdio>
#include <fstream>

#include "base/cuda_built.h"
#include "base/device_kind.h"
#include "tests/ops/ops_doc.h"

int main() {
  if (!lenslet::cuda_built) {
    std::fputs("lenslet-write-ops-doc: this build lacks the CUDA kernels that docs/ops.md lists\n", stderr);
    return 1;
  }
  const char* path = LENSLET_SOURCE_DIR "/docs/ops.md";
  std::ofstream file(path, std::ios::binary);
  file << lenslet::test::ops_doc();
  file.close();
  if (!file) std::perror(path);
  return file ? 0 : 1;
}
