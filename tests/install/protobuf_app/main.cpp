// Uses its own protobuf messages before, during and after loading a model with lenslet.
#include <lenslet/model.h>

#include <cstdio>
#include <string>

#include "note.pb.h"

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  onnx::ModelProto note;
  note.set_title("a note");
  for (const char* line : {"one", "two", "three"}) note.add_lines(line);
  const std::string bytes = note.SerializeAsString();

  const lenslet::Model model = lenslet::Model::load(argv[1]);

  onnx::ModelProto parsed;
  if (!parsed.ParseFromString(bytes) || parsed.lines(2) != "three") return 1;
  std::printf("%s of %d lines; model %s with %zu input\n", parsed.title().c_str(), parsed.lines_size(),
              model.name().c_str(), model.inputs().size());
  google::protobuf::ShutdownProtobufLibrary();
} catch (const std::exception& error) {
  return std::fprintf(stderr, "app: %s\n", error.what()), 1;
}
