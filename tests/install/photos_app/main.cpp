// in_cpp MODEL.onnx LABELS.txt PHOTO...: the card's file, and each photo's best class or error.
#include <lenslet/photos.h>

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    const lenslet::Model model = lenslet::Model::load(argv[1]);
    const lenslet::FoundCard found = lenslet::card_of(model, argv[1]);
    std::cout << "card " << found.file.string() << "\n";
    lenslet::PhotoOptions options;
    options.devices = {"cpu"};
    options.labels = argv[2];
    lenslet::PhotoClassifier photos(model, found.card, options);
    const std::vector<std::string> files(argv + 3, argv + argc);
    photos.classify(files, [](const lenslet::PhotoResult& result) {
      std::cout << result.name << ": " << (result.error ? result.error->what() : result.top.at(0).label) << "\n";
      return true;
    });
  } catch (const lenslet::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
