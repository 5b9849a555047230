// Writes docs/ops.md: the target update-ops-doc.

#include <cstdio>
#include <fstream>

#include "tests/ops/ops_doc.h"

int main() {
  const char* path = LENSLET_SOURCE_DIR "/docs/ops.md";
  std::ofstream file(path, std::ios::binary);
  file << lenslet::test::ops_doc();
  file.close();
  if (!file) std::perror(path);
  return file ? 0 : 1;
}
