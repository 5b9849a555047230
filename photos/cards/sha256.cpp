#include "photos/cards/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <memory>
#include <new>
#include <vector>

#include "lenslet/error.h"

namespace lenslet::photos {

namespace {

class Sum {
 public:
  Sum() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  }
  void add(const void* bytes, std::size_t count) { EVP_DigestUpdate(context_.get(), bytes, count); }
  std::string text() {
    std::array<unsigned char, 32> sum{};
    EVP_DigestFinal_ex(context_.get(), sum.data(), nullptr);
    std::string text;
    for (const unsigned char byte : sum) text += fmt::format("{:02x}", byte);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

std::string sha256_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  Sum sum;
  std::vector<char> block(std::size_t{1} << 20);
  while (stream) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    sum.add(block.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (!stream.eof()) throw Error(ErrorKind::io, "the file cannot be read", file.string());
  return sum.text();
}

std::string sha256_of(std::span<const std::byte> bytes) {
  Sum sum;
  sum.add(bytes.data(), bytes.size());
  return sum.text();
}

}  // namespace lenslet::photos
