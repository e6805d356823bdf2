package casstore

import (
	"hash/fnv"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Groups is how many groups of rows there are, for a driver whose changes are atomic only among rows that are together.
// A change is about rows and entries of one group.
const Groups = protocol.Shards - protocol.QuestionShards

// Group is the group of a row, or of a record's entries, by the id.
func Group(id string) int {
	if protocol.IsPauseID(id) {
		id = pausesRow
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % Groups)
}

// DueGroups are the groups whose rows are due in the shard, EntryGroups those whose entries are in it: one or three.
func DueGroups(shard int) []int {
	if shard >= protocol.QuestionShards {
		return []int{shard - protocol.QuestionShards}
	}
	return every(protocol.QuestionShards, shard)
}

// EntryGroups are the groups whose entries are in the shard.
func EntryGroups(shard int) []int { return every(protocol.AuditShards, shard) }

func every(n, from int) (groups []int) {
	for g := from; g < Groups; g += n {
		groups = append(groups, g)
	}
	return groups
}

// shardOf is the record's shard of the index: a claim that no sweep has postponed is among the claims.
func shardOf(rec *protocol.Record) int {
	if rec.State == protocol.InProgress && rec.Sweep == "" {
		return protocol.QuestionShards + Group(rec.ID)
	}
	return Group(rec.ID) % protocol.QuestionShards
}
