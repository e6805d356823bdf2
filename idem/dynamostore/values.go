package dynamostore

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/schema"
)

// item is a stored item, or the values of an expression.
type item = map[string]types.AttributeValue

// values fills an item. The members are made in slices, a few allocations for
// all of them instead of one for each.
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

// nameSet is a set of those attributes whose names are DynamoDB's reserved
// words, which expressions must write as #name.
type nameSet uint16

const (
	nError nameSet = 1 << iota
	nOwner
	nRef
	nRepeat
	nResult
	nSize
	nState
	nValue
	nWrite
	allNames = iota
)

// nameTable keeps the maps of names that expressions need, each made once.
type nameTable [1 << allNames]atomic.Pointer[map[string]string]

func (t *nameTable) of(set nameSet) map[string]string {
	if m := t[set].Load(); m != nil {
		return *m
	}
	m := set.fresh()
	t[set].Store(&m)
	return m
}

func (set nameSet) fresh() map[string]string {
	reserved := [allNames]string{
		schema.Error, schema.Owner, schema.Ref, schema.Repeat, schema.Result,
		schema.Size, schema.State, schema.Value, schema.Write,
	}
	m := make(map[string]string, allNames+1)
	for i, name := range reserved {
		if set&(1<<i) != 0 {
			m["#"+name] = name
		}
	}
	return m
}
