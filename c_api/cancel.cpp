#include "c_api/objects.h"
#include "c_api/structs.h"
#include "lenslet/c_api.h"

using namespace lenslet::c_api;

lenslet_status lenslet_cancel_create(lenslet_cancel** cancel) {
  return guarded([&] {
    check_given(cancel, "cancel");
    *cancel = nullptr;
    *cancel = Handles<CancelObject>::add(std::make_shared<CancelObject>());
  });
}

lenslet_status lenslet_cancel_request(lenslet_cancel* cancel) {
  return guarded([&] { Handles<CancelObject>::get(cancel)->source.request_stop(); });
}

lenslet_status lenslet_cancel_free(lenslet_cancel* cancel) {
  return guarded([&] { Handles<CancelObject>::free(cancel); });
}
