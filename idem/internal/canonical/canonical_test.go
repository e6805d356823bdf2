package canonical

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

func canonicalOf(t *testing.T, text string) string {
	t.Helper()
	out, err := Append(nil, []byte(text))
	require.NoError(t, err, "%.200q", text)
	return string(out)
}

// TestCanonicalFiles runs the pairs NAME.in.json and NAME.out.json, among them
// the samples of RFC 8785, sections 3.2.2 and 3.2.3.
func TestCanonicalFiles(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(inputs), 6)
	for _, file := range inputs {
		t.Run(filepath.Base(file), func(t *testing.T) {
			in, err := os.ReadFile(file)
			require.NoError(t, err)
			want, err := os.ReadFile(strings.TrimSuffix(file, ".in.json") + ".out.json")
			require.NoError(t, err)
			want = bytes.TrimSuffix(want, []byte("\n"))
			require.Equal(t, string(want), canonicalOf(t, string(in)))
			require.Equal(t, string(want), canonicalOf(t, string(want)), "a canonical text is its own form")
		})
	}
}

// TestCanonicalRFC8785Numbers holds the doubles of RFC 8785, appendix B.
func TestCanonicalRFC8785Numbers(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		f := math.Float64frombits(bits)
		for _, format := range []byte{'e', 'f'} {
			in := strconv.FormatFloat(f, format, -1, 64)
			require.Equal(t, want, canonicalOf(t, in), "%016x written as %.40s", bits, in)
		}
	}
}

func TestCanonicalNumbers(t *testing.T) {
	digits := strings.Repeat("1234567890", 40)
	for _, test := range []struct {
		want  string
		texts []string
	}{
		{"0", []string{"0", "-0", "0.0", "-0.000", "0e5", "-0E-5", "0e999999999", "0.0e-999999999"}},
		{"1", []string{"1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "0.01E2", "100000e-0000005",
			"1.000000000000000000000000000000"}},
		{"-1", []string{"-1", "-1.0", "-10e-1"}},
		{"100", []string{"100", "1e2", "1.00e2", "1E2", "1e+02", "1000e-1"}},
		{"0.1", []string{"0.1", "1e-1", "0.10", "1000e-4"}},
		{"4.5", []string{"4.5", "4.50", "45e-1"}},
		{"0.000001", []string{"0.000001", "1e-6"}},
		{"1e-7", []string{"1e-7", "0.0000001", "1E-07"}},
		{"100000000000000000000", []string{"1e20", "100000000000000000000", "100000000000000000000.0"}},
		{"999999999999999900000", []string{"999999999999999900000", "9.999999999999999e20"}},
		{"1e+21", []string{"1e21", "1E+21", "1000000000000000000000", "1000000000000000000000.0", "0.001e24"}},
		{"-1e+21", []string{"-1e21", "-1000000000000000000000"}},
		{"1.5e+300", []string{"1.5e300", "15" + strings.Repeat("0", 299)}},
		{"9007199254740991", []string{"9007199254740991", "9007199254740991.0"}},
		// Only a plain integer is exact beyond 2^53.
		{"9007199254740992", []string{"9007199254740992", "9007199254740992.0", "9.007199254740992e15",
			"9007199254740993.0", "9007199254740993e0", "9.007199254740993e15", "900719925474099.3e1", "90071992547409930e-1"}},
		{"-9007199254740992", []string{"-9007199254740993.0"}},
		{"9007199254740993", []string{"9007199254740993"}},
		{"9007199254740994", []string{"9007199254740994", "9007199254740994.0"}},
		{"-9007199254740993", []string{"-9007199254740993"}},
		{"18446744073709551615", []string{"18446744073709551615"}},
		{"295147905179352825856", []string{"295147905179352825856"}},
		{"1000000000000000000001", []string{"1000000000000000000001"}},
		{"340282366920938463463374607431768211456", []string{"340282366920938463463374607431768211456"}},
		{digits, []string{digits}},
		{"1" + strings.Repeat("0", 400), []string{"1" + strings.Repeat("0", 400)}},
		// As writers with 17 digits, or with all of a double, have it.
		{"0.1", []string{"0.10000000000000001", "0.1000000000000000055511151231257827021181583404541015625"}},
		{"12.34", []string{"12.34", "12.340000000000000"}},
		{"333333333.3333333", []string{"333333333.33333329"}},
		{"1125899906842625.8", []string{"1125899906842625.75"}},
		{"295147905179352830000", []string{"295147905179352825856.0", "2.9514790517935283e20"}},
		// Half way between two doubles the even one counts.
		{"4503599627370496", []string{"4503599627370496.5"}},
		{"4503599627370498", []string{"4503599627370497.5"}},
		{"1e+23", []string{"1e23", "100000000000000000000000", "100000000000000000000000.0"}},
		// The smallest numbers.
		{"5e-324", []string{"5e-324", "4.9e-324", "4.9406564584124654e-324", "2.5e-324", "7.4e-324",
			"0." + strings.Repeat("0", 323) + "5"}},
		{"1e-323", []string{"1e-323", "7.5e-324"}},
		{"2.2250738585072014e-308", []string{"2.2250738585072014e-308", "2.2250738585072012e-308"}},
		{"2.225073858507201e-308", []string{"2.2250738585072011e-308"}},
		{"0", []string{"2.4e-324", "2e-324", "-1e-324", "1e-400", "1e-999999999", "1e-99999999999999999999999999",
			"0." + strings.Repeat("0", 400) + "1"}},
		// The largest.
		{"1.7976931348623157e+308", []string{"1.7976931348623157e308", "1.7976931348623158e308"}},
		{"1e+308", []string{"1e308", "0." + strings.Repeat("0", 5000) + "1e5309"}},
	} {
		for _, text := range test.texts {
			require.Equal(t, test.want, canonicalOf(t, text), "%.80s", text)
			require.Equal(t, test.want, canonicalOf(t, " "+text+"\n"), "%.80s", text)
			require.Equal(t, `{"n":[`+test.want+`,"1.0"]}`, canonicalOf(t, `{"n":[`+text+`,"1.0"]}`), "%.80s", text)
		}
		require.Equal(t, test.want, canonicalOf(t, test.want))
	}
}

// No double holds numbers beyond the largest, nor more than 17 digits: of two amounts of a coin with
// 18 decimals, neither may be taken for the other.
func TestCanonicalRefusesWhatNoDoubleHolds(t *testing.T) {
	for reason, texts := range map[string][]string{
		"out of the range": {
			"1e309", "-1e309", "1e400", "1.8e308", "1.797693134862315808e308", "1e999999999", "-1e999999999",
			"1e99999999999999999999999999", strings.Repeat("9", 400) + ".5", strings.Repeat("9", 309) + ".0",
		},
		"more than 17 significant digits": {
			"1.000000000000000001", "1.000000000000000002", "-1.000000000000000001e-5", "0.10000000000000000001",
			"0.100000000000000006", "0.1000000000000000055511151231257827", "12.33999999999999986", "1000000000000000000.1",
			"1.00000000000000011102230246251565404236316680908203125", "1." + strings.Repeat("0", 400) + "1",
			"1.79769313486231580793e308", "4.94065645841246544e-324", "0." + strings.Repeat("123", 300),
			"1.00000000000000001e-400", "1." + strings.Repeat("1", 1<<20),
		},
	} {
		for _, text := range texts {
			for _, doc := range []string{"%s", `{"a":["1 -2.0",1,2.50,%s],"b":1e999}`, `[{"b":1E5,"a":-0}, %s]`} {
				doc = fmt.Sprintf(doc, text)
				out, err := Append([]byte("kept"), []byte(doc))
				require.Equal(t, "kept", string(out))
				var refused *Error
				require.ErrorAs(t, err, &refused, "%.80s", doc)
				require.Equal(t, int64(strings.Index(doc, text)), refused.Offset)
				require.Contains(t, refused.Reason, reason)
				require.Contains(t, refused.Reason, "or a string")
				require.Less(t, len(err.Error()), 300)
			}
		}
	}
}

// Whatever a program writes of its doubles stands for them, and 17 digits are enough.
func TestCanonicalTakesDoublesHoweverTheyAreWritten(t *testing.T) {
	random := rand.New(rand.NewSource(754))
	doubles := []float64{0.1, 1e22, 1e23, 8.98846567431158e307, 2.2250738585072011e-308, 5e-324, 1 << 53,
		0x1p122, math.MaxFloat64}
	for range 1_000 {
		if f := math.Float64frombits(random.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			doubles = append(doubles, f)
		}
	}
	for range 500 { // below 2^-1022, and about there
		doubles = append(doubles, math.Float64frombits(random.Uint64()>>(10+random.Intn(54))))
	}
	for _, f := range doubles {
		want := string(appendDouble(nil, f))
		for _, text := range []string{
			fmt.Sprintf("%.17g", f), strconv.FormatFloat(f, 'e', -1, 64), strconv.FormatFloat(f, 'f', -1, 64) + "e0",
			strconv.FormatFloat(f, 'e', 16, 64), strconv.FormatFloat(f, 'e', 766, 64),
			new(big.Float).SetFloat64(f).Text('e', 1100),
		} {
			if !strings.ContainsAny(text, ".e") {
				text += ".0" // a plain integer stands for itself
			}
			require.Equal(t, want, canonicalOf(t, text), "%.80s", text)
		}
		for _, digits := range []int{1, 2, 15, 16} {
			text := strconv.FormatFloat(f, 'e', digits-1, 64)
			if next, err := strconv.ParseFloat(text, 64); err == nil {
				require.Equal(t, string(appendDouble(nil, next)), canonicalOf(t, text))
			}
		}
	}
}

// appendDouble writes a double as RFC 8785 does.
func appendDouble(to []byte, f float64) []byte {
	if f == 0 {
		return append(to, '0') // without a sign
	}
	return jsontext.AppendFloat(to, f, 64)
}

// Each takes the standard library up to a thousand times as long as any other.
func TestCanonicalTakesFewNumbersNextToZero(t *testing.T) {
	for _, tiny := range []string{"5e-324", "4.9406564584124654e-324", "-123e-330",
		"2.2250738585072014e-308", "0.09e-306"} {
		list := func(n int) string { return "[0.0,1e-306" + strings.Repeat(", "+tiny, n) + "]" }
		canonicalOf(t, list(mostTiny))
		_, err := Append(nil, []byte(list(mostTiny+1)))
		var refused *Error
		require.ErrorAs(t, err, &refused)
		require.Contains(t, refused.Reason, "more than 100 numbers are closer to zero than 1e-307: send 0 or strings")
		require.Equal(t, int64(len(list(mostTiny))+1), refused.Offset)
	}
}

func TestCanonicalStringsAndOrder(t *testing.T) {
	for in, want := range map[string]string{
		`"\u0000\u0001\u000b\u001F\u007f"`:   `"\u0000\u0001\u000b\u001f` + "\x7f" + `"`,
		`"\u0008\u0009\u000A\u000c\u000D"`:   `"\b\t\n\f\r"`,
		`"\/\u002f\u003c\u0026\u2028\u00e9"`: `"//<&` + "\u2028é" + `"`,
		`"\uD83D\uDE00\ud83d\ude00"`:         `"😀😀"`,
		"\"e\u0301\"":                        "\"e\u0301\"", // no normalisation
		`{"b":1,"a":2}`:                      `{"a":2,"b":1}`,
		`{"":1,"aa":1,"a":1,"A":1,"B":1}`:    `{"":1,"A":1,"B":1,"a":1,"aa":1}`,
		`{"10":1,"9":1,"1":1}`:               `{"1":1,"10":1,"9":1}`,
		// by UTF-16, not by code point
		"{\"\ue000\":1,\"\U00010000\":2}":                               "{\"\U00010000\":2,\"\ue000\":1}",
		`{"\u000a":1,"\t":2,"\u0000":3}`:                                `{"\u0000":3,"\t":2,"\n":1}`,
		` [ { "z" : { "y" : [ ] , "x" : { } } } , null,true , false ] `: `[{"z":{"x":{},"y":[]}},null,true,false]`,
		`{"a":[{"d":1,"c":2},{"f":3,"e":4}]}`:                           `{"a":[{"c":2,"d":1},{"e":4,"f":3}]}`,
		`"1e400 [{ -0 9007199254740993.0 \" 1e400"`:                     `"1e400 [{ -0 9007199254740993.0 \" 1e400"`,
		`{"1e21":1000000000000000000000,"\"-0":[-0]}`:                   `{"\"-0":[0],"1e21":1e+21}`,
	} {
		require.Equal(t, want, canonicalOf(t, in))
		require.Equal(t, want, canonicalOf(t, want))
	}
}

func TestCanonicalRefusals(t *testing.T) {
	nested := func(open, shut string, n int) string { return strings.Repeat(open, n) + "1" + strings.Repeat(shut, n) }
	for _, test := range []struct {
		name, in, reason string
		offset           int64
	}{
		{"empty", "", "is empty", 0},
		{"white space", " \r\n\t", "is empty", 0},
		{"byte order mark", "\xef\xbb\xbf{}", "byte order mark", 0},
		{"UTF-16", "\xff\xfe{\x00}\x00", "UTF-8", 0},
		{"duplicate", `{"a":1,"b":2,"a":1}`, `occurs twice`, 13},
		{"duplicate by escape", `{"a":1,"\u0061":1}`, `occurs twice`, 7},
		{"duplicate by surrogates", `{"😀":1,"\ud83d\ude00":1}`, `occurs twice`, 10},
		{"duplicate inside", `[{"x":{"":0,"":0}}]`, `occurs twice`, 12},
		{"invalid UTF-8 in value", "{\"a\":\"x\xff\"}", "not valid UTF-8", 7},
		{"invalid UTF-8 in name", "{\"\xc3\x28\":1}", "not valid UTF-8", 2},
		{"overlong UTF-8", "\"\xc0\xaf\"", "not valid UTF-8", 1},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", "not valid UTF-8", 1},
		{"lone high surrogate", `"\ud800"`, "half a surrogate pair", 1},
		{"lone low surrogate", `["ab\uDFFFcd"]`, "half a surrogate pair", 4},
		{"swapped surrogates", `"\ude00\ud83d"`, "half a surrogate pair", 1},
		{"surrogate then text", `"\ud83dx12345"`, "half a surrogate pair", 1},
		{"lone surrogate in name", `{"\udbff":1}`, "half a surrogate pair", 2},
		{"trailing value", `{} {}`, "not valid JSON", 3},
		{"trailing number", `1e400 x`, "not valid JSON", 6},
		{"trailing comma", `{"a":1,}`, "not valid JSON", 7},
		{"truncated", `{"a":`, "breaks off", 5},
		{"truncated string", `"abc`, "breaks off", 4},
		{"truncated escape", `"\ud8`, "breaks off", 1},
		{"no quotes", `{a:1}`, "not valid JSON", 1},
		{"single quotes", `{'a':1}`, "not valid JSON", 1},
		{"comment", `{} // no`, "not valid JSON", 3},
		{"leading zero", `01`, "not valid JSON", 1},
		{"plus", `+1`, "not valid JSON", 0},
		{"no digits after the point", `[1.]`, "not valid JSON", 3},
		{"NaN", `NaN`, "not valid JSON", 0},
		{"control character", "\"a\nb\"", "not valid JSON", 2},
		{"bad escape", `"\x41"`, "not valid JSON", 1},
		{"bad hexadecimals", `"\ud8g0"`, "not valid JSON", 1},
		{"text with a large number", `call 1e400`, "not valid JSON", 0},
		{"form data", `amount=9007199254740993.0`, "not valid JSON", 0},
		{"no JSON behind many digits", `[1.000000000000000001 x`, "not valid JSON", 22},
		{"no JSON behind a long integer", `[1000000000000000000000,1000000000000000000000 x`, "not valid JSON", 47},
		{"duplicate behind a long integer", `{"a":1000000000000000000000,"a":1}`, "occurs twice", 28},
		{"arrays too deep", nested("[", "]", 201), "more than 200 deep", 200},
		{"objects too deep", nested(`{"a":`, "}", 201), "more than 200 deep", 1000},
		{"hostile depth", strings.Repeat("[", 1<<20), "more than 200 deep", 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			kept := []byte("kept")
			out, err := Append(kept, []byte(test.in))
			require.Equal(t, "kept", string(out))
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Reason, test.reason)
			require.Contains(t, refused.Reason, ": send ", "says what to do")
			require.Equal(t, test.offset, refused.Offset)
		})
	}
	require.Equal(t, nested("[", "]", 200), canonicalOf(t, nested("[", "]", 200)))
	require.Equal(t, nested(`{"a":`, "}", 200), canonicalOf(t, nested(`{"a":`, "}", 200)))
	require.Equal(t, nested(`[{"[":`, "}]", 100), canonicalOf(t, nested(`[{"[":`, "}]", 100)))
	wide := "[" + strings.TrimSuffix(strings.Repeat("[],", 2000), ",") + "]"
	require.Equal(t, wide, canonicalOf(t, wide), "depth is not a count")

	long := strings.Repeat("n", 100_000)
	_, err := Append(nil, []byte(`{"`+long+`":1,"`+long+`":1}`))
	require.Less(t, len(err.Error()), 300, "an error does not repeat the input")
}

// plainText is what clients send: a list of orders.
func plainText(size int) []byte {
	return listOf(size, "[", "]", func(i int) string {
		return fmt.Sprintf(`{"id":"ord-%08d","amount":%d.%02d,"currency":"EUR","lines":[{"sku":"A%d","qty":%d}],`+
			`"note":"left at the neighbour's"}`, i, i, i%100, i%977, i%7)
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
		"a long string deep inside":         []byte(nested(`"` + strings.Repeat("x", size-12*MaxDepth) + `"`)),
		"many deep objects":                 list(nested("0")),
		"many deep arrays":                  list(strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1)),
		"many empty objects":                list("{}"),
		"many small objects":                list(`{"b":0,"a":0}`),
		"many names":                        names(""),
		"many long names":                   names(strings.Repeat("a", 200)),
		"many names beyond the BMP":         names(strings.Repeat("\U0001F600", 4)),
		"many escaped names":                names(`\u00e9\n`),
		"the smallest double":               list("5e-324"),
		"the smallest double, written long": list("4.9406564584124654e-324"),
		"doubles below 2^-1022": listOf(size, "[",
			"]", func(i int) string { return fmt.Sprintf("%de-%d", i%90_000, 308+i%20) }),
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
		"digits that %.17g writes": listOf(size, "[",
			"]", func(i int) string { return fmt.Sprintf("%.17g", float64(i)/100) }),
		"half way, without a fraction":       list("100000000000000000000000"),
		"one number of many digits":          []byte("1." + strings.Repeat("1", size-2)),
		"one plain integer of many digits":   bytes.Repeat([]byte("1"), size),
		"zeros with a fraction":              list("-0.0"),
		"exponents":                          list("1e9"),
		"control characters":                 []byte(`"` + strings.Repeat(`\u0001`, size/6) + `"`),
		"characters that need no escape":     []byte(`"` + strings.Repeat(`\u0041`, size/6) + `"`),
		"a number beyond doubles at the end": append(list("1.5")[:size-8:size-8], ",1e999]"...),
		"a name twice at the end":            append(names("")[:size-20:size-20], `":0,"zz":1,"zz":2}`...),
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

const document = `{"":0,"\"\n":4,"a":"x","b":{"c":1,"d":{"e":2},"é":3},"m/n":1,"o~p":2,"z":[10,` +
	`[20,21],{"k":30}],"~1":3}`

func TestFind(t *testing.T) {
	require.Equal(t, document, canonicalOf(t, document))
	for pointer, want := range map[string]string{
		"": document, "/": "0", "/\"\n": "4", "/a": `"x"`, "/b": `{"c":1,"d":{"e":2},"é":3}`, "/b/c": "1",
		"/b/d": `{"e":2}`, "/b/é": "3",
		"/m~1n": "1", "/o~0p": "2", "/~01": "3", "/z/0": "10", "/z/1": "[20,21]", "/z/1/1": "21",
		"/z/2": `{"k":30}`, "/z/2/k": "30",
	} {
		value, found := Find([]byte(document), pointer)
		require.True(t, found, "%q", pointer)
		require.Equal(t, want, string(value), "%q", pointer)
	}
	for _, pointer := range []string{
		"/missing", "/A", "/a/b", "/b/c/x", "/b/0", "/z/3", "/z/-", "/z/00", "/z/-1", "/z/+0", "/z/", "/z/k",
		"/z/99999999999999999999", "/m/n",
	} {
		value, found := Find([]byte(document), pointer)
		require.False(t, found, "%q", pointer)
		require.Empty(t, value)
	}
	for _, scalar := range []string{"1", `"a"`, "null", "[]", "{}"} {
		value, found := Find([]byte(scalar), "")
		require.True(t, found)
		require.Equal(t, scalar, string(value))
		_, found = Find([]byte(scalar), "/0")
		require.False(t, found)
	}
}

func TestCutLeavesACanonicalText(t *testing.T) {
	for _, test := range []struct {
		without []string
		want    string
	}{
		{[]string{"/missing", "/a/b", "/b/c/x", "/z/3", "/z/-", "/z/00", "/z/-1", "/z/+0", "/z/99999999999999999999", "/b/0"},
			document},
		{[]string{"/z", "/b", "/"}, `{"a":"x","m/n":1,"o~p":2,"~1":3,"\"\n":4}`},
		{[]string{"/m~1n", "/o~0p", "/~01", "/\"\n", "/z", "/b"}, `{"":0,"a":"x"}`},
		{[]string{"/z", "/b", "/a", "/", "/m~1n", "/o~0p", "/~01", "/\"\n"}, `{}`},
		{[]string{"/m~1n", "/o~0p", "/~01", "/\"\n", "/b/d/e", "/b/é", "/z/2/k"},
			`{"z":[10,[20,21],{}],"b":{"c":1,"d":{}},"a":"x","":0}`},
		{[]string{"/m~1n", "/o~0p", "/~01", "/\"\n", "/b", "/z/0", "/z/1"}, `{"z":[{"k":30}],"a":"x","":0}`},
		{[]string{"/m~1n", "/o~0p", "/~01", "/\"\n", "/b", "/z/1/1", "/z/2", "/z/0"}, `{"z":[[20]],"a":"x","":0}`},
		{[]string{"/m~1n", "/o~0p", "/~01", "/\"\n", "/b", "/z/2", "/z/1", "/z/0"}, `{"z":[],"a":"x","":0}`},
	} {
		require.Equal(t, canonicalOf(t, test.want), string(Cut([]byte(document), test.without)), "%q", test.without)
	}
}
