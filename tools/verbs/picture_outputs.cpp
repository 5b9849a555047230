#include "tools/verbs/picture_outputs.h"

#include <fmt/format.h>

#include "lenslet/error.h"
#include "tools/pictures/show_tensor.h"
#include "tools/pictures/write_png.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorKind::invalid_argument, text); }

std::size_t only_picture(const Model& model, std::span<const Tensor> outputs) {
  std::vector<std::size_t> found;
  std::string all;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const DType dtype = outputs[i].dtype();
    if (shows_picture(dtype, outputs[i].shape())) found.push_back(i);
    all += fmt::format("{}{} {} {}", i == 0 ? "" : ", ", model.outputs()[i].name, to_string(dtype),
                       outputs[i].shape().str());
  }
  if (found.empty()) refuse(fmt::format("--output: no output shows a picture; the model has {}", all));
  if (found.size() > 1)
    refuse(fmt::format("--output: several outputs show a picture; give NAME=FILE.png of one of {}", all));
  return found.front();
}

}  // namespace

void add_picture_output_options(CLI::App& verb, PictureOutputOptions& options) {
  verb.add_option(
          "--output", options.files,
          "Write an output as a picture, repeatable: one of 1 (gray), 3 (RGB) or 4 channels (RGBA), or of whole "
          "numbers that are classes (a colour each). Without a name the only output that is one")
      ->type_name("[NAME=]FILE.png")
      ->take_all()
      ->allow_extra_args(false);
  verb.add_option("--output-scale", options.scale,
                  "What the picture's values are multiplied by to be 0 to 255; default: 255 for floats, 1 for uint8")
      ->check(finite_number());
}

std::vector<PictureOutput> picture_outputs(const Model& model, const PictureOutputOptions& options) {
  std::vector<PictureOutput> wanted;
  for (const std::string& text : options.files) {
    PictureOutput& output = wanted.emplace_back(PictureOutput{named_port(model.outputs(), text), text});
    if (output.port) output.file = text.substr(model.outputs()[*output.port].name.size() + 1);
    const std::string name = output.file.filename().string();
    if (const std::size_t equals = name.find('='); !output.port && equals != name.npos && output.file == name)
      refuse(fmt::format("--output {}: no output is called '{}'; the model has {}", text, name.substr(0, equals),
                         described(model.outputs())));
    if (output.file.extension() != ".png")
      refuse(fmt::format("--output {}: a picture is written as PNG: wanted FILE.png", text));
  }
  if (options.scale && wanted.empty()) refuse("--output-scale is of a picture, and no --output asks for one");
  return wanted;
}

void write_pictures(const Model& model, std::span<const Tensor> outputs, const PictureOutputOptions& options,
                    std::vector<PictureOutput>& wanted) {
  std::vector<ShownTensor> shown;
  for (PictureOutput& output : wanted) {
    if (!output.port) output.port = only_picture(model, outputs);
    const std::string& name = model.outputs()[*output.port].name;
    try {
      shown.push_back(show_tensor(outputs[*output.port], options.scale));
    } catch (const Error& error) {
      throw error.within(fmt::format("output {}", name));
    }
    // Filters overshoot slightly at edges; many clamped values mean another range.
    const std::int64_t values = outputs[*output.port].elems();
    if (shown.back().outside > values / 100)
      note(fmt::format("output {}: {} of {} values are beyond 0 to {:.6g} and were clamped (--output-scale)", name,
                       shown.back().outside, values, 255 / options.scale.value_or(255)));
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) write_png(wanted[i].file, shown[i].picture.view());
}

}  // namespace lenslet::tool
