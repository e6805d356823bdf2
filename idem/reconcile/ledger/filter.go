package ledger

import "hash/maphash"

// filter has the names that were added, and takes few others for them: 2% after 10 million names in 16 MB.
type filter struct {
	seed maphash.Seed
	bits []uint64
}

func newFilter(memory int) filter {
	return filter{maphash.MakeSeed(), make([]uint64, max(memory/8, 1))}
}

func (f filter) add(name string) {
	for _, n := range f.places(name) {
		f.bits[n/64] |= 1 << (n % 64)
	}
}

func (f filter) has(name string) bool {
	all := true
	for _, n := range f.places(name) {
		all = all && f.bits[n/64]&(1<<(n%64)) != 0
	}
	return all
}

func (f filter) places(name string) [2]uint64 {
	h, all := maphash.String(f.seed, name), uint64(len(f.bits))*64
	return [2]uint64{h >> 32 % all, uint64(uint32(h)) % all}
}
