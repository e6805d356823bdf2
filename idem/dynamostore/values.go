package dynamostore

import (
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/schema"
)

// item is a stored item, or the values of an expression.
type item = map[string]types.AttributeValue

// values fills an item. The members are made in slices, a few allocations for
// all of them instead of one for each. What it is made for is the usual item, to which
// two more members may come: a map that is made larger is slower to send.
type values struct {
	item
	s []types.AttributeValueMemberS
	n []types.AttributeValueMemberN
}

func newValues(strings, numbers int) *values {
	return &values{
		item: make(item, strings+numbers+2),
		s:    make([]types.AttributeValueMemberS, 0, strings),
		n:    make([]types.AttributeValueMemberN, 0, numbers),
	}
}

func (v *values) str(name, value string) {
	v.s = append(v.s, types.AttributeValueMemberS{Value: value})
	v.item[name] = &v.s[len(v.s)-1]
}

func (v *values) num(name string, value int64) {
	v.n = append(v.n, types.AttributeValueMemberN{Value: strconv.FormatInt(value, 10)})
	v.item[name] = &v.n[len(v.n)-1]
}

func (v *values) bytes(name string, value []byte) {
	if value == nil {
		value = []byte{}
	}
	v.item[name] = &types.AttributeValueMemberB{Value: value}
}

func (v *values) yes(name string) {
	v.item[name] = &types.AttributeValueMemberBOOL{Value: true}
}

// millis is a time as stored: milliseconds since 1970, 0 for no time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// expiry is an expiry as stored: seconds since 1970, rounded up, so that nothing
// expires before its time.
func expiry(t time.Time) int64 {
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

// shard is the id's partition of the index of open questions (FNV-1a): one
// partition would take a thousand writes a second and no more.
func shard(id string) string {
	h := uint32(2166136261)
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return shardName(h % schema.ShardCount)
}

func shardName(n uint32) string { return string([]byte{'0' + byte(n/10), '0' + byte(n%10)}) }
