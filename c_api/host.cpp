#include "c_api/host.h"

#include "c_api/structs.h"

namespace lenslet::c_api {

class Host::CExecutor final : public Executor {
 public:
  explicit CExecutor(const lenslet_executor& app) : lent(app.context, app.release), run_(app.run) {}
  void run(int tasks, Task task) override { run_(lent.context(), tasks, task.call, task.context); }
  Lent lent;

 private:
  decltype(lenslet_executor::run) run_;
};

class Host::CAllocator final : public Allocator {
 public:
  explicit CAllocator(const lenslet_allocator& app)
      : lent(app.context, app.release), allocate_(app.allocate), deallocate_(app.deallocate) {}
  void* allocate(std::size_t bytes, std::size_t alignment, bool on_cuda) override {
    return allocate_(lent.context(), bytes, alignment, on_cuda ? LENSLET_ON_CUDA : LENSLET_ON_HOST);
  }
  void release(void* data, std::size_t bytes, std::size_t alignment, bool on_cuda) noexcept override {
    deallocate_(lent.context(), data, bytes, alignment, on_cuda ? LENSLET_ON_CUDA : LENSLET_ON_HOST);
  }
  Lent lent;

 private:
  decltype(lenslet_allocator::allocate) allocate_;
  decltype(lenslet_allocator::deallocate) deallocate_;
};

Host::Host(const lenslet_plan_options& options) {
  if (options.executor != nullptr) {
    const lenslet_executor app = taken(options.executor, "executor");
    if (app.run == nullptr) throw Error(ErrorKind::invalid_argument, "executor: run is NULL");
    executor_ = std::make_shared<CExecutor>(app);
  }
  if (options.allocator != nullptr) {
    const lenslet_allocator app = taken(options.allocator, "allocator");
    if (app.allocate == nullptr || app.deallocate == nullptr)
      throw Error(ErrorKind::invalid_argument, "allocator: allocate or deallocate is NULL");
    allocator_ = std::make_shared<CAllocator>(app);
  }
}

void Host::give_to(PlanOptions& options) const {
  options.executor = executor_;
  options.allocator = allocator_;
}

void Host::take_over() {
  if (executor_ != nullptr) executor_->lent.take_over();
  if (allocator_ != nullptr) allocator_->lent.take_over();
}

}  // namespace lenslet::c_api
