package canonical

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// plainText is what people send: a list of orders.
func plainText(size int) []byte {
	return listOf(size, "[", "]", func(i int) string {
		return fmt.Sprintf(`{"id":"ord-%08d","amount":%d.%02d,"currency":"EUR","lines":[{"sku":"A%d","qty":%d}],"note":"left at the neighbour's"}`, i, i, i%100, i%977, i%7)
	})
}

// hostileTexts are made to cost more than others of their size.
func hostileTexts(size int) map[string][]byte {
	scattered := func(i int) uint32 { return uint32(i) * 2654435761 }
	names := func(prefix string) []byte {
		return listOf(size, "{", "}", func(i int) string { return fmt.Sprintf(`"%s%x":0`, prefix, scattered(i)) })
	}
	list := func(element string) []byte {
		return listOf(size, "[", "]", func(int) string { return element })
	}
	nested := func(value string) string {
		return strings.Repeat(`{"b":0,"a":`, MaxDepth-2) + value + strings.Repeat("}", MaxDepth-2)
	}
	return map[string][]byte{
		"a long string deep inside":           []byte(nested(`"` + strings.Repeat("x", size-12*MaxDepth) + `"`)),
		"many deep objects":                   list(nested("0")),
		"many deep arrays":                    list(strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1)),
		"many empty objects":                  list("{}"),
		"many small objects":                  list(`{"b":0,"a":0}`),
		"many names":                          names(""),
		"many long names":                     names(strings.Repeat("a", 200)),
		"many names beyond the BMP":           names(strings.Repeat("\U0001F600", 4)),
		"many escaped names":                  names(`\u00e9\n`),
		"the smallest double":                 list("5e-324"),
		"the smallest double, written long":   list("4.9406564584124654e-324"),
		"doubles below 2^-1022":               listOf(size, "[", "]", func(i int) string { return fmt.Sprintf("%de-%d", i%90_000, 308+i%20) }),
		"the largest double":                  list("1.7976931348623158079e308"),
		"half way, short":                     list("9007199254740993e0"),
		"half way, long":                      list("1.00000000000000011102230246251565404236316680908203125"),
		"half way, very long":                 list("1." + strings.Repeat("0123456789", 78) + "e-307"),
		"half way, of 17 digits":              list("4503599627370496.5"),
		"a double's exact digits, short":      list("1125899906842625.75"),
		"a double's exact digits, an integer": list("295147905179352825856.0"),
		"a double's exact digits, long":       list(strconv.FormatFloat(0x1.fffffffffffffp1000, 'f', 1, 64)),
		"a double's exact digits, small":      list(strconv.FormatFloat(0x1.fffffffffffffp-900, 'e', 766, 64)),
		"too close to zero for a double":      list("1e-400"),
		"digits that %.17g writes":            listOf(size, "[", "]", func(i int) string { return fmt.Sprintf("%.17g", float64(i)/100) }),
		"half way, without a fraction":        list("100000000000000000000000"),
		"one number of many digits":           []byte("1." + strings.Repeat("1", size-2)),
		"one plain integer of many digits":    bytes.Repeat([]byte("1"), size),
		"zeros with a fraction":               list("-0.0"),
		"exponents":                           list("1e9"),
		"control characters":                  []byte(`"` + strings.Repeat(`\u0001`, size/6) + `"`),
		"characters that need no escape":      []byte(`"` + strings.Repeat(`\u0041`, size/6) + `"`),
		"a number beyond doubles at the end":  append(list("1.5")[:size-8:size-8], ",1e999]"...),
		"a name twice at the end":             append(names("")[:size-20:size-20], `":0,"zz":1,"zz":2}`...),
	}
}

func listOf(size int, open, shut string, element func(i int) string) []byte {
	var b bytes.Buffer
	b.WriteString(open)
	for i := 0; ; i++ {
		e := element(i)
		if b.Len()+len(e)+2 > size {
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(e)
	}
	b.WriteString(shut)
	return b.Bytes()
}
