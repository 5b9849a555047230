// Legal C++ compiles whatever warnings lenslet is built with, and private headers are not found.
#include <lenslet/runner.h>

#include <cstdio>

#if __has_include("base/format.h")
#error "lenslet's source tree is on the app's include path"
#endif

int main(int argc, char** argv) try {
  lenslet::Runner runner(lenslet::Model::load(argv[1]));
  lenslet::Tensor t(lenslet::DType::f32, runner.plan().inputs.at(0).second);
  int n = t.elems();
  std::printf("%d elements in, %d out\n", n, static_cast<int>(runner.run(t)[0].elems()));
} catch (const std::exception& error) {
  return std::fprintf(stderr, "app: %s\n", error.what()), 1;
}
