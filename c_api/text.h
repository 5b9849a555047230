#pragma once
// Texts owned by the application.

#include <string>

namespace lenslet::c_api {

/// A copy for lenslet_text_free(). std::bad_alloc.
char* text_for_app(const std::string& text);

}  // namespace lenslet::c_api
