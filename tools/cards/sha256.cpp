#include "tools/cards/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <memory>
#include <new>
#include <vector>

#include "lenslet/error.h"

namespace lenslet::tool {

std::string sha256_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  std::vector<char> block(std::size_t{1} << 20);
  while (stream) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    EVP_DigestUpdate(context.get(), block.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (!stream.eof()) throw Error(ErrorKind::io, "the file cannot be read", file.string());
  std::array<unsigned char, 32> sum{};
  EVP_DigestFinal_ex(context.get(), sum.data(), nullptr);
  std::string text;
  for (const unsigned char byte : sum) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace lenslet::tool
