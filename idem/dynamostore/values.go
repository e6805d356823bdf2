package dynamostore

import (
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/schema"
)

// item is a stored item, or the values of an expression.
type item = map[string]types.AttributeValue

// values fills an item. The usual members are made with it, in one allocation instead
// of one for each.
//
// Its methods are not inlined: their many calls would make the code 19 KB larger, in every
// function's binary, and no faster next to a request's other costs.
type values struct {
	item
	s      [8]types.AttributeValueMemberS
	n      [4]types.AttributeValueMemberN
	sn, nn int // how many of them are used
}

// newValues makes an item for so many members, to which two more may come: a map that is
// made larger is slower to send.
func newValues(strings, numbers int) *values {
	return &values{item: make(item, strings+numbers+2)}
}

//go:noinline
func (v *values) str(name, value string) {
	if v.sn == len(v.s) {
		v.item[name] = &types.AttributeValueMemberS{Value: value}
		return
	}
	v.s[v.sn].Value = value
	v.item[name] = &v.s[v.sn]
	v.sn++
}

//go:noinline
func (v *values) num(name string, value int64) {
	text := strconv.FormatInt(value, 10)
	if v.nn == len(v.n) {
		v.item[name] = &types.AttributeValueMemberN{Value: text}
		return
	}
	v.n[v.nn].Value = text
	v.item[name] = &v.n[v.nn]
	v.nn++
}

//go:noinline
func (v *values) bytes(name string, value []byte) {
	if value == nil {
		value = []byte{}
	}
	v.item[name] = &types.AttributeValueMemberB{Value: value}
}

//go:noinline
func (v *values) yes(name string) {
	v.item[name] = &types.AttributeValueMemberBOOL{Value: true}
}

// optStr, optNum and optYes leave out what is empty, zero or false.
//
//go:noinline
func (v *values) optStr(name, value string) {
	if value != "" {
		v.str(name, value)
	}
}

//go:noinline
func (v *values) optNum(name string, value int64) {
	if value != 0 {
		v.num(name, value)
	}
}

//go:noinline
func (v *values) optYes(name string, is bool) {
	if is {
		v.yes(name)
	}
}

// millis is a time as stored: milliseconds since 1970, 0 for no time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// decimal is a bound of a part of the index.
func decimal(n int64) string { return strconv.FormatInt(max(n, 0), 10) }

// expiry is an expiry as stored: seconds since 1970, rounded up, so that nothing
// expires before its time, and 0 for none.
func expiry(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// seconds is a retention as stored, rounded up.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// The index of what is due is divided into shards by the id's hash: one partition would take a
// thousand writes a second and no more.

// questionShard is the shard of a record that is an open question.
func questionShard(id string) string { return shardName(hash(id) % schema.QuestionShards) }

// claimShard is the shard of a watched claim.
func claimShard(id string) string {
	return shardName(schema.QuestionShards + hash(id)%(schema.ShardCount-schema.QuestionShards))
}

// hash is FNV-1a.
func hash(id string) uint32 {
	h := uint32(2166136261)
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return h
}

func shardName(n uint32) string { return string([]byte{'0' + byte(n/10), '0' + byte(n%10)}) }
