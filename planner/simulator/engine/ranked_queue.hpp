// Transfers that wait for a link, by rank; those of one rank in the order of arrival.
//
// All ranks are known before the first step. So the transfers of a link stand in a row, from the lowest rank to the
// highest, and those of one rank take the places of that rank as they arrive. A bit for each place says who waits: the
// first bit is the next transfer, and no ranks are compared. A step queues each transfer once and leaves the queue
// empty, so a rank has places enough.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "inputs.hpp"

namespace planner {

// For each transfer the first place of its rank on its link; for other ops nothing that counts.
inline std::vector<int32_t> rank_places(const Inputs& in) {
  std::vector<int32_t> transfers(in.transfers.begin(), in.transfers.end()), places(in.ops, 0);
  auto link = [&in](int32_t op) { return in.lane_of(in.resource[op], in.server[op]); };
  std::ranges::sort(transfers, [&](int32_t a, int32_t b) {
    return link(a) != link(b) ? link(a) < link(b) : in.policy.rank[a] < in.policy.rank[b];
  });
  int32_t place = 0, first = 0;
  for (size_t i = 0; i < transfers.size(); ++i, ++place) {
    bool same_link = i > 0 && link(transfers[i]) == link(transfers[i - 1]);
    if (!same_link) place = 0;
    if (!same_link || in.policy.rank[transfers[i]] != in.policy.rank[transfers[i - 1]]) first = place;
    places[transfers[i]] = first;
  }
  return places;
}

class RankedQueue {
 public:
  struct Waiting {
    int32_t op;
    int32_t rank_place;  // the first place of its rank
    int64_t left;        // bytes; for blocks: the block, -1 for a lone transfer
  };

  explicit RankedQueue(size_t transfers) : bits_((transfers + 63) / 64, 0), waiting_(transfers), arrived_(transfers, 0) {}

  bool empty() const { return count_ == 0; }
  void add(const Waiting& waiting) {
    int32_t place = waiting.rank_place + arrived_[waiting.rank_place]++;
    waiting_[place] = waiting;
    bits_[place / 64] |= uint64_t{1} << (place % 64);
    word_ = std::min(word_, size_t(place) / 64);
    ++count_;
  }
  // Only where the queue is not empty.
  Waiting& first() { return waiting_[first_place()]; }
  void remove_first() {
    size_t place = first_place();
    int32_t rank_place = waiting_[place].rank_place;
    bits_[word_] &= bits_[word_] - 1;
    --count_;
    bool last_of_rank = place + 1 == size_t(rank_place + arrived_[rank_place]);
    if (last_of_rank) arrived_[rank_place] = 0;
  }

 private:
  size_t first_place() {
    while (bits_[word_] == 0) ++word_;
    return word_ * 64 + static_cast<size_t>(std::countr_zero(bits_[word_]));
  }

  std::vector<uint64_t> bits_;
  size_t word_ = 0;  // no bit is set before this word
  size_t count_ = 0;
  std::vector<Waiting> waiting_;   // by place
  std::vector<int32_t> arrived_;  // by the first place of a rank: how many of its places are taken
};

}  // namespace planner
