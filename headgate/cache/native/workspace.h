// Memory that grows and stays with its thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace headgate {

class Workspace {
  public:
    template <typename T>
    T* take(int64_t count) {
        T* const here = reinterpret_cast<T*>(memory_.get() + used_);
        used_ += bytes<T>(count);
        return here;
    }

    template <typename T>
    static int64_t bytes(int64_t count) {
        return (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    }

    void reserve(int64_t bytes) {
        used_ = 0;
        if (bytes <= size_) return;
        memory_.reset();
        size_ = bytes;
        memory_.reset(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(bytes))));
        if (memory_ == nullptr) std::abort();
        // Rows that only fill up a block are multiplied as well: no NaN may slow that down.
        std::memset(memory_.get(), 0, static_cast<size_t>(bytes));
    }

  private:
    struct Free {
        void operator()(char* memory) const { std::free(memory); }
    };
    std::unique_ptr<char, Free> memory_;
    int64_t size_ = 0;
    int64_t used_ = 0;
};

}  // namespace headgate
