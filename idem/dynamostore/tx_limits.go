package dynamostore

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/schema"
)

// maxTransaction is DynamoDB's limit of all items of a transaction together.
const maxTransaction = 4 << 20

// checkActions holds the actions to DynamoDB's limits before it is called, so that
// the error can name the item. size is that of the record's own part.
func (s *Store) checkActions(recordID string, actions []action, size int) error {
	keys := s.tableKeys(actions)
	seen := map[string]int{tableOf(*s.table) + "\x00" + itemText(key(recordID), []string{schema.PK, schema.SK}): -1}
	largest, most := 0, 0
	for n, a := range actions {
		names, known := keys[tableOf(aws.ToString(a.table))]
		if !known || a.kind == "Put" && !hasAll(a.item, names) {
			// Without the names of a table's keys only a repeated Put is known as such.
			names = nil
		}
		id := tableOf(aws.ToString(a.table)) + "\x00" + itemText(a.item, names)
		switch first, twice := seen[id]; {
		case twice && first < 0:
			return a.about(n, errors.New("it is the record of this very operation, which commits anyway"))
		case twice:
			return a.about(n, fmt.Errorf("action %d, a %s, is on the same item, and a transaction takes one action an item: "+
				"make one of both", first, actions[first].kind))
		}
		seen[id] = n
		own := a.size()
		if a.write.Put != nil && itemSize(a.item) > maxItem {
			return a.about(n, fmt.Errorf("the item has %d bytes, and DynamoDB takes %d", itemSize(a.item), maxItem))
		}
		if size += own; own > most {
			largest, most = n, own
		}
	}
	if size > maxTransaction {
		return actions[largest].about(largest, fmt.Errorf("the transaction has %d bytes, and DynamoDB takes %d: this "+
			"action is the largest, with %d", size, maxTransaction, most))
	}
	return nil
}

// tableKeys are the names of the key attributes of the tables, as far as they are
// known: by the options, and by the actions that give a key.
func (s *Store) tableKeys(actions []action) map[string][]string {
	known := map[string][]string{tableOf(*s.table): {schema.PK, schema.SK}}
	for table, names := range s.keys {
		known[tableOf(table)] = names
	}
	for _, a := range actions {
		table := tableOf(aws.ToString(a.table))
		if _, ok := known[table]; !ok && a.kind != "Put" {
			known[table] = sortedNames(a.item)
		}
	}
	return known
}

// tableOf is a table's name, which may be given as its ARN.
func tableOf(name string) string {
	if strings.HasPrefix(name, "arn:") {
		if _, after, ok := strings.Cut(name, ":table/"); ok {
			return after
		}
	}
	return name
}

func hasAll(it item, names []string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { _, ok := it[n]; return !ok })
}

func sortedNames(it item) []string { return slices.Sorted(maps.Keys(it)) }

// itemText writes the attributes as one text: equal for equal items, by all
// attributes if no names are given.
func itemText(it item, names []string) string {
	if names == nil {
		names = sortedNames(it)
	}
	var b strings.Builder
	for _, n := range names {
		b.WriteString(strconv.Quote(n))
		b.WriteByte('=')
		writeValue(&b, it[n])
		b.WriteByte(';')
	}
	return b.String()
}

func writeValue(b *strings.Builder, v types.AttributeValue) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		b.WriteString(strconv.Quote(v.Value))
	case *types.AttributeValueMemberN:
		b.WriteString(plainNumber(v.Value))
	case *types.AttributeValueMemberB:
		b.WriteString("b" + base64.RawStdEncoding.EncodeToString(v.Value))
	case *types.AttributeValueMemberBOOL:
		b.WriteString(strconv.FormatBool(v.Value))
	case *types.AttributeValueMemberM:
		b.WriteString("{" + itemText(v.Value, nil) + "}")
	case *types.AttributeValueMemberL:
		b.WriteByte('[')
		for _, e := range v.Value {
			writeValue(b, e)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	default:
		fmt.Fprintf(b, "%T%v", v, v)
	}
}

// plainNumber is one form for equal numbers: digits without zeros around them and
// an exponent of ten.
func plainNumber(s string) string {
	mantissa, exp, ok := strings.Cut(strings.ToLower(s), "e")
	e := 0
	if ok {
		var err error
		if e, err = strconv.Atoi(exp); err != nil {
			return s
		}
	}
	sign := ""
	if rest, neg := strings.CutPrefix(mantissa, "-"); neg {
		sign, mantissa = "-", rest
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "+"), ".")
	e -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	return sign + short + "e" + strconv.Itoa(e+len(digits)-len(short))
}

// size is the least that an action counts for: an Update's item may be larger.
func (a action) size() int {
	n := itemSize(a.item)
	if u := a.write.Update; u != nil {
		n += itemSize(u.ExpressionAttributeValues)
	}
	return n
}

// itemSize is an item's size as DynamoDB counts it: names and values in UTF-8, a
// number about a byte for two digits and one more, three bytes for a map or a list
// and one for each of its entries (developer guide, "Item sizes and formats").
func itemSize(it item) int {
	n := 0
	for name, v := range it {
		n += len(name) + valueSize(v)
	}
	return n
}

func valueSize(v types.AttributeValue) int {
	n := 0
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return (len(v.Value)+1)/2 + 1
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + itemSize(v.Value)
	case *types.AttributeValueMemberL:
		for _, e := range v.Value {
			n += 1 + valueSize(e)
		}
		return 3 + n
	case *types.AttributeValueMemberSS:
		for _, e := range v.Value {
			n += len(e)
		}
		return n
	case *types.AttributeValueMemberNS:
		for _, e := range v.Value {
			n += (len(e)+1)/2 + 1
		}
		return n
	case *types.AttributeValueMemberBS:
		for _, e := range v.Value {
			n += len(e)
		}
		return n
	}
	return 1
}
