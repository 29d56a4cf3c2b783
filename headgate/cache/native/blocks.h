// How products go through their rows and weights, whatever computes them.
#pragma once

#include <cstdint>

namespace headgate {

constexpr int64_t kPanel = 32;  // outputs that lie together
constexpr int64_t kTileRows = 16;

// Rows in blocks of equal height, so that one shape of tiles does for all. Rows past the last one are computed and ignored.
struct Blocks {
    explicit Blocks(int64_t given)
        : rows(given), count((rows + kTileRows - 1) / kTileRows), height((rows + count - 1) / count), padded(count * height) {}

    int64_t rows;
    int64_t count;
    int64_t height;
    int64_t padded;
};

}  // namespace headgate
