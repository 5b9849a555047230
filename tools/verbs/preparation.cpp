#include "tools/verbs/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "lenslet/error.h"
#include "lenslet/picture.h"
#include "photos/dtype_convert.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

namespace fs = std::filesystem;

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorKind::invalid_argument, fmt::format(text, std::forward<Args>(args)...));
}

bool is_picture(const fs::path& file) {
  if (file == "-") return true;
  if (file.extension() == ".pb" || file.extension() == ".bin") return false;  // these may begin with anything
  std::array<char, 12> head{};
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), head.size());
  const auto bytes =
      std::as_bytes(std::span(head)).first(static_cast<std::size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  if (begins_as_picture(bytes)) return true;
  if (file.extension() == ".npy") return false;
  if (bytes.empty()) return true;  // reading it as a picture reports the error
  throw Error(ErrorKind::invalid_argument,
              "an input file must be a picture (JPEG, PNG, BMP, PNM, WebP) or end in .npy, .pb or .bin", file.string());
}

// The preprocessing without a card.
ImageSpec plain_spec(const PortInfo& port, const Picture& picture, const PreparationOptions& options) {
  const auto is_channels = [](std::int64_t dim) { return dim == 1 || dim == 3; };
  ImageSpec spec;
  spec.nhwc = !is_channels(port.dims[1]) && is_channels(port.dims[3]);
  const std::size_t height_axis = spec.nhwc ? 1 : 2;
  const std::int64_t channels = port.dims[spec.nhwc ? 3 : 1];
  if (!is_channels(channels))
    refuse("the input {} {} has neither 1 nor 3 channels: a card (--card) has to say how it takes a picture", port.name,
           port.str());
  if (channels == 1) spec.channels = ImageSpec::Channels::gray;
  spec.mean.assign(static_cast<std::size_t>(channels), 0);
  spec.std.assign(static_cast<std::size_t>(channels), 1);
  if (photos::is_float(port.dtype)) spec.scale = 1.0 / 255;
  const std::int64_t height = port.dims[height_axis], width = port.dims[height_axis + 1];
  spec.height = height < 0 ? picture.height : height;
  spec.width = width < 0 ? picture.width : width;
  apply(options, spec);
  if ((height >= 0 && spec.height != height) || (width >= 0 && spec.width != width))
    refuse("--size {},{} contradicts the input {} {}", spec.height, spec.width, port.name, port.str());
  const bool as_it_is = spec.height == picture.height && spec.width == picture.width;
  spec.resize = as_it_is ? ImageSpec::Resize::none : ImageSpec::Resize::stretch;
  spec.crop = ImageSpec::Crop::none;
  return spec;
}

class PictureReader {
 public:
  PictureReader(const Model& model, const fs::path& model_file, const PreparationOptions& options)
      : model_(model), model_file_(model_file), options_(options) {}

  Tensor read(const std::string& file, std::size_t index) {
    const PortInfo& port = model_.inputs()[index];
    if (!is_picture(file)) return read_tensor(file, port);
    if (port.dims.size() != 4) refuse("{} is a picture, and the input {} {} takes none", file, port.name, port.str());
    if (port.dims[0] > 1)
      refuse("the input {} {} takes {} pictures at once: give it as a tensor", port.name, port.str(), port.dims[0]);
    if (!photos::is_float(port.dtype) && port.dtype != DType::u8)
      refuse("the input {} is {}; pictures are for float and uint8 inputs", port.name, to_string(port.dtype));
    const Card* const card = card_of_input(index);
    const Picture picture = read_image(file, {.draft = card != nullptr ? card->draft_spec() : nullptr});
    const ImageSpec spec = card != nullptr ? card->spec : plain_spec(port, picture, options_);
    if (card == nullptr) note(fmt::format("no card says how {} takes a picture: {}", port.name, describe(spec)));
    const std::int64_t channels = spec.channels == ImageSpec::Channels::gray ? 1 : 3;
    Tensor input(photos::is_float(port.dtype) ? port.dtype : DType::f32,
                 spec.nhwc ? Shape{1, spec.height, spec.width, channels} : Shape{1, channels, spec.height, spec.width});
    to_input(picture.view(), spec, input);
    return photos::is_float(port.dtype) ? input : photos::to_bytes(input);
  }

  bool any() const { return any_; }

 private:
  /// nullptr: no card says how this input takes a picture.
  const Card* card_of_input(std::size_t index) {
    if (!any_) {
      any_ = true;
      if (options_.card.empty())
        card_ = find_card_of(model_, model_file_);
      else
        card_ = FoundCard{read_card(options_.card), options_.card, FoundBy::option};
      if (card_) apply(options_, card_->card.spec);
      if (card_) bound_ = bind_card(card_->card, model_);
      if (card_ && bound_.input == index) say_source(*card_, model_file_);
    }
    return card_ && bound_.input == index ? &card_->card : nullptr;
  }

  const Model& model_;
  const fs::path& model_file_;
  const PreparationOptions& options_;
  bool any_ = false;
  std::optional<FoundCard> card_;
  BoundCard bound_;
};

}  // namespace

void add_preparation_options(CLI::App& verb, PreparationOptions& options) {
  verb.add_option("--card", options.card,
                  "Model card (JSON); default: NAME.card.json beside the model, else one that ships with lenslet");
  const auto numbers = [&](const char* name, std::vector<double>& to, const char* help) {
    verb.add_option(name, to, help)
        ->type_name("C1[,C2,C3]")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(finite_number());
  };
  verb.add_option("--size", options.size, "Height and width of the model's input, or one number for both")
      ->type_name("H[,W]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(whole_number<std::int64_t>(1, 16384));
  numbers("--mean", options.mean, "Subtracted from each channel (after --scale), in the model's order of channels");
  numbers("--std", options.std, "What each channel is then divided by");
  verb.add_option("--scale", options.scale, "What pixels of 0 to 255 are multiplied by first")->check(finite_number());
  verb.add_flag("--bgr", options.bgr, "The model takes blue, green, red");
}

void apply(const PreparationOptions& options, ImageSpec& spec) {
  if (!options.size.empty()) {
    if (options.size.size() > 2) refuse("--size takes a height and a width");
    const bool shorter = spec.resize == ImageSpec::Resize::shorter_side;
    const auto side = [&] { return shorter ? std::max(spec.height, spec.width) : std::min(spec.height, spec.width); };
    const std::int64_t before = side();
    spec.height = options.size.front();
    spec.width = options.size.back();
    if (shorter || spec.resize == ImageSpec::Resize::longer_side)  // keeps the proportion to the input
      spec.resize_size = (spec.resize_size * side() + before / 2) / before;
  }
  if (options.bgr) {
    if (spec.channels == ImageSpec::Channels::gray) refuse("--bgr: the model takes gray pictures");
    spec.channels = ImageSpec::Channels::bgr;
  }
  const std::size_t channels = spec.channels == ImageSpec::Channels::gray ? 1 : 3;
  const auto each = [&](const char* name, const std::vector<double>& given, std::vector<double>& to) {
    if (given.empty()) return;
    if (given.size() != 1 && given.size() != channels)
      refuse("{} has {} values; the model's input has {} channels", name, given.size(), channels);
    to = given.size() == 1 ? std::vector<double>(channels, given.front()) : given;
  };
  each("--mean", options.mean, spec.mean);
  each("--std", options.std, spec.std);
  if (std::find(spec.std.begin(), spec.std.end(), 0.0) != spec.std.end()) refuse("--std holds a 0");
  if (options.scale) spec.scale = *options.scale;
}

GivenModel given_model(const std::string& model, const PreparationOptions& options) {
  GivenModel given{model, std::nullopt};
  if (options.card.empty()) return given;
  given.card = FoundCard{read_card(options.card), options.card, FoundBy::option};
  if (model.empty() && !given.card->card.model.empty())
    given.file = fs::path(options.card).parent_path() / given.card->card.model;
  return given;
}

nlohmann::ordered_json results_header(const fs::path& model_file, const FoundCard& found, const std::string& device,
                                      const PlanOptions& plan) {
  nlohmann::ordered_json card;  // null for a default card
  if (found.found_by != FoundBy::nothing)
    card = {{"path", found.file.string()}, {"found_by", to_string(found.found_by)}};
  return {{"model", model_file.string()},
          {"device", device},
          {"preparation", describe(found.card)},
          {"assumed", found.found_by == FoundBy::nothing},
          {"card", card},
          {"machine", provenance(plan)}};
}

void say_source(const FoundCard& found, const fs::path& model_file) {
  if (const std::string words = source_words(found, model_file); !words.empty()) note(words);
}

std::vector<Tensor> read_pictures_or_tensors(const Model& model, const fs::path& model_file,
                                             const std::vector<std::string>& texts, const PreparationOptions& options) {
  PictureReader reader(model, model_file, options);
  std::vector<Tensor> inputs = read_named_inputs(
      model, texts, [&](const std::string& file, std::size_t port) { return reader.read(file, port); });
  if (options.any() && !reader.any())
    refuse("{} says how pictures are prepared, and no --input is one", !options.card.empty()   ? "--card"
                                                                       : !options.size.empty() ? "--size"
                                                                       : !options.mean.empty() ? "--mean"
                                                                       : !options.std.empty()  ? "--std"
                                                                       : options.scale         ? "--scale"
                                                                                               : "--bgr");
  return inputs;
}

}  // namespace lenslet::tool
