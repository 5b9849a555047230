#include <fmt/format.h>

#include "lenslet/c_api.h"
#include "lenslet/error.h"
#include "lenslet/version.h"

lenslet_status lenslet_negotiate(uint32_t api_major, uint32_t api_minor) {
  return lenslet::c_api::guarded([&] {
    if (api_major == LENSLET_API_MAJOR && api_minor <= LENSLET_API_MINOR) return;
    throw lenslet::Error(
        lenslet::ErrorKind::unsupported,
        fmt::format("the program was made for version {}.{} of lenslet.h, lenslet " LENSLET_VERSION " has {}.{}",
                    api_major, api_minor, LENSLET_API_MAJOR, LENSLET_API_MINOR));
  });
}

void lenslet_api_version(uint32_t* api_major, uint32_t* api_minor) {
  if (api_major != nullptr) *api_major = LENSLET_API_MAJOR;
  if (api_minor != nullptr) *api_minor = LENSLET_API_MINOR;
}

const char* lenslet_version(void) { return LENSLET_VERSION; }
