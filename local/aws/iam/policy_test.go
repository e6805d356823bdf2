package iam

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// role has policies of these documents, which are named by their number.
func role(t *testing.T, documents ...string) Role {
	t.Helper()
	r := Role{Name: "Shop-Role"}
	for i, text := range documents {
		var document any
		require.NoError(t, json.Unmarshal([]byte(text), &document), text)
		p, err := Parse("policy "+string(rune('1'+i)), document)
		require.NoError(t, err)
		r.Policies = append(r.Policies, p)
	}
	return r
}

const (
	books  = "arn:aws:dynamodb:us-east-1:000000000000:table/Books"
	jobs   = "arn:aws:sqs:us-east-1:000000000000:jobs"
	all    = `{"Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}`
	noPuts = `{"Statement":{"Effect":"Deny","Action":"dynamodb:Put*","Resource":"*"}}`
)

func ask(action, resource string) Request { return Request{Action: action, Resource: resource} }

// "Policy evaluation logic", and the elements of statements.
func TestAllows(t *testing.T) {
	put := ask("dynamodb:PutItem", books)
	allow := func(rest string) string { return `{"Statement":[{"Effect":"Allow",` + rest + `}]}` }
	for _, tc := range []struct {
		policies []string
		request  Request
		want     Outcome
		why      string
	}{
		// What no statement allows is refused, an Allow is enough, a Deny overrides it in any order and policy.
		{nil, put, Missing, ""},
		{[]string{all}, put, Granted, ""},
		{[]string{all, noPuts}, put, Denied, "policy 2"},
		{[]string{noPuts, all}, put, Denied, "policy 1"},
		{[]string{noPuts, all}, ask("dynamodb:GetItem", books), Granted, ""},
		{[]string{allow(`"Action":"sqs:*","Resource":"*"`), allow(`"Action":"dynamodb:PutItem","Resource":"*"`)}, put,
			Granted, ""},
		// Actions have wildcards and no case.
		{[]string{allow(`"Action":"DynamoDB:putitem","Resource":"*"`)}, put, Granted, ""},
		{[]string{allow(`"Action":["sqs:*","dynamodb:*Item"],"Resource":"*"`)}, put, Granted, ""},
		{[]string{allow(`"Action":"dynamodb:?utItem","Resource":"*"`)}, put, Granted, ""},
		{[]string{allow(`"Action":"dynamodb:Put","Resource":"*"`)}, put, Missing, ""},
		{[]string{allow(`"Action":"PutItem","Resource":"*"`)}, put, Missing, ""},
		{[]string{allow(`"Action":"dynamodb:PutItem?","Resource":"*"`)}, put, Missing, ""},
		{[]string{allow(`"NotAction":["iam:*","sqs:*"],"Resource":"*"`)}, put, Granted, ""},
		{[]string{allow(`"NotAction":["iam:*","sqs:*"],"Resource":"*"`)}, ask("sqs:SendMessage", jobs), Missing, ""},
		// Resources have wildcards, also across slashes, and case.
		{[]string{allow(`"Action":"*","Resource":["` + jobs + `","` + books + `"]`)}, put, Granted, ""},
		{[]string{allow(`"Action":"*","Resource":"arn:aws:dynamodb:*:*:table/B???s"`)}, put, Granted, ""},
		{[]string{allow(`"Action":"*","Resource":"arn:aws:dynamodb:us-east-1:000000000000:table/books"`)}, put, Missing, ""},
		{[]string{allow(`"Action":"*","Resource":"` + books + `"`)}, ask("dynamodb:Query", books+"/index/open"), Missing, ""},
		{[]string{allow(`"Action":"*","Resource":"` + books + `/index/*"`)}, ask("dynamodb:Query", books+"/index/open"),
			Granted, ""},
		{[]string{allow(`"Action":"*","Resource":"` + books + `*"`)}, ask("dynamodb:Query", books+"/index/open"), Granted,
			""},
		{[]string{allow(`"Action":"*","Resource":"arn:aws:dynamodb:us-east-1:*"`)}, put, Granted, ""},
		{[]string{allow(`"Action":"*","Resource":"arn:aws:dynamodb:eu-west-1:*"`)}, put, Missing, ""},
		{[]string{allow(`"Action":"*","NotResource":"` + jobs + `"`)}, put, Granted, ""},
		{[]string{allow(`"Action":"*","NotResource":"` + books + `"`)}, put, Missing, ""},
		{[]string{allow(`"Action":"*","Resource":"arn.aws.dynamodb:us-east-1:000000000000:table/Books"`)}, put, Missing, ""},
		// A policy variable may be anything.
		{[]string{allow(`"Action":"*","Resource":"` + books + `${aws:username}"`)}, put, AsFar, "the Resource in policy 1"},
		{[]string{allow(`"Action":"*","Resource":"arn:aws:sqs:${x}"`)}, put, Missing, ""},
		{[]string{allow(`"Action":"*","NotResource":"` + books + `${aws:username}"`)}, put, AsFar,
			"the Resource in policy 1"},
		{[]string{allow(`"Action":"*","Resource":["${x}","` + books + `"]`)}, put, Granted, ""},
		{[]string{all, `{"Statement":{"Effect":"Deny","Action":"*","Resource":"${x}"}}`}, put, AsFar,
			"a Deny with the Resource in policy 2"},
		{[]string{`{"Statement":{"Effect":"Deny","Action":"*","Resource":"${x}"}}`}, put, Missing, ""},
		{[]string{`{"Statement":{"Effect":"Deny","Action":"*","Resource":"*","Condition":{"Bool":` +
			`{"aws:SecureTransport":"false"}}}}`}, put, Missing, ""},
		{[]string{allow(`"Action":"*","Resource":"${x}"`), `{"Statement":{"Effect":"Deny","Action":"*","Resource":"${y}"}}`},
			put, AsFar, "the Resource in policy 1, a Deny with the Resource in policy 2"},
		{[]string{all, allow(`"Action":"*","Resource":"${x}"`),
			`{"Statement":{"Effect":"Deny","Action":"*","Resource":"${y}"}}`}, put, AsFar,
			"a Deny with the Resource in policy 3"},
		// A request that does not name its resource.
		{[]string{all}, ask("sqs:CancelMessageMoveTask", ""), Granted, ""},
		{[]string{allow(`"Action":"sqs:*","Resource":"` + jobs + `"`)}, ask("sqs:CancelMessageMoveTask", ""), AsFar,
			"the Resource in policy 1"},
		{[]string{allow(`"Action":"sqs:*","NotResource":"` + jobs + `"`)}, ask("sqs:CancelMessageMoveTask", ""), AsFar,
			"the Resource in policy 1"},
		{[]string{allow(`"Action":"sns:*","Resource":"` + jobs + `"`)}, ask("sqs:CancelMessageMoveTask", ""), Missing, ""},
	} {
		d := role(t, tc.policies...).Allows(tc.request)
		require.Equal(t, Decision{tc.want, tc.why}, d, "%v %v", tc.policies, tc.request)
		require.Equal(t, tc.want == Granted || tc.want == AsFar, d.Granted())
	}
	unknown := Role{NotEvaluated: []string{"arn:aws:iam::aws:policy/ReadOnlyAccess"}}
	require.Equal(t, Decision{AsFar, "arn:aws:iam::aws:policy/ReadOnlyAccess"}, unknown.Allows(put))
	unknown.Policies = role(t, `{"Statement":{"Effect":"Allow","Action":"*","Resource":"${x}"}}`).Policies
	require.Equal(t, Decision{AsFar, "the Resource in policy 1"}, unknown.Allows(put))
	unknown.Policies = role(t, all).Policies
	require.Equal(t, Decision{Outcome: Granted}, unknown.Allows(put))
	unknown.Policies = role(t, noPuts).Policies
	require.Equal(t, Denied, unknown.Allows(put).Outcome)
}

// "Condition operators", "Single-valued vs. multivalued context keys": what a statement with a condition says to a
// request with these leading keys.
func TestConditions(t *testing.T) {
	with := func(keys ...string) map[string][]string { return map[string][]string{leadingKeys: keys} }
	for _, tc := range []struct {
		condition string
		context   map[string][]string
		want      Outcome
	}{
		{`{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":["a","b"]}}`, with("a"), Granted},
		{`{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":["a","b"]}}`, with("a", "b", "a"), Granted},
		{`{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":["a","b"]}}`, with("a", "c"), Missing},
		{`{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":["a*"]}}`, with("ab"), Missing},
		{`{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":["A"]}}`, with("a"), Missing},
		{`{"ForAllValues:StringEqualsIgnoreCase":{"dynamodb:LeadingKeys":["A"]}}`, with("a"), Granted},
		{`{"ForAllValues:StringLike":{"DYNAMODB:leadingkeys":"acme#*"}}`, with("acme#1", "acme#\n"), Granted},
		{`{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":"acme#*"}}`, with("acme#1", "umbrella#2"), Missing},
		{`{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":"acme#?"}}`, with("acme#12"), Missing},
		{`{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":"acme#*"}}`, with(), Granted}, // no keys
		{`{"ForAnyValue:StringLike":{"dynamodb:LeadingKeys":"acme#*"}}`, with("acme#1", "umbrella#2"), Granted},
		{`{"ForAnyValue:StringLike":{"dynamodb:LeadingKeys":"acme#*"}}`, with("umbrella#2"), Missing},
		{`{"ForAnyValue:StringLike":{"dynamodb:LeadingKeys":"acme#*"}}`, with(), Missing},
		{`{"ForAnyValue:StringLikeIfExists":{"dynamodb:LeadingKeys":"acme#*"}}`, with(), Missing},
		{`{"ForAllValues:StringNotLike":{"dynamodb:LeadingKeys":"acme#*"}}`, with("umbrella#2"), Granted},
		{`{"ForAllValues:StringNotLike":{"dynamodb:LeadingKeys":"acme#*"}}`, with("umbrella#2", "acme#1"), Missing},
		{`{"ForAnyValue:StringNotEquals":{"dynamodb:LeadingKeys":"a"}}`, with("b", "a"), Granted},
		{`{"ForAnyValue:StringNotEquals":{"dynamodb:LeadingKeys":"a"}}`, with("a"), Missing},
		{`{"StringLike":{"dynamodb:LeadingKeys":"acme#*"}}`, with("acme#1"), Granted},
		{`{"StringLike":{"dynamodb:LeadingKeys":"acme#*"}}`, with(), Missing},
		{`{"StringLikeIfExists":{"dynamodb:LeadingKeys":"acme#*"}}`, with(), Granted},
		{`{"StringNotEquals":{"dynamodb:LeadingKeys":["a","b"]}}`, with("b"), Missing},
		{`{"StringNotEquals":{"dynamodb:LeadingKeys":["a","b"]}}`, with("c"), Granted},
		{`{"StringNotEquals":{"dynamodb:LeadingKeys":["a","b"]}}`, with(), Granted},
		{`{"StringEquals":{"dynamodb:LeadingKeys":17}}`, with("17"), Granted},
		{`{"Null":{"dynamodb:LeadingKeys":"false"}}`, with("a"), Granted},
		{`{"Null":{"dynamodb:LeadingKeys":false}}`, with(), Missing},
		{`{"Null":{"dynamodb:LeadingKeys":["true"]}}`, with(), Granted},
		// All operators and all keys have to hold.
		{`{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":"a#*"},"Null":{"dynamodb:LeadingKeys":"false"}}`, with("a#1"),
			Granted},
		{`{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":"a#*"},"Null":{"dynamodb:LeadingKeys":"false"}}`, with(),
			Missing},
		{`{"StringEquals":{"aws:RequestedRegion":["us-east-1","eu-west-1"],"aws:PrincipalAccount":"000000000000"}}`, nil,
			Granted},
		{`{"StringEquals":{"aws:RequestedRegion":"us-east-1","aws:PrincipalAccount":"111122223333"}}`, nil, Missing},
		{`{"StringEquals":{"aws:SourceAccount":"000000000000"}}`, nil, Missing}, // no service calls for another
		{`{"ArnLike":{"aws:SourceArn":"*"}}`, nil, Missing},
		{`{"Bool":{"aws:SecureTransport":"true"}}`, nil, Granted},
		{`{"Bool":{"aws:SecureTransport":false}}`, nil, Missing},
		{`{"StringEquals":{"dynamodb:EnclosingOperation":"TransactWriteItems"}}`, map[string][]string{enclosing: nil},
			Missing},
		{`{"StringEquals":{"dynamodb:EnclosingOperation":"TransactWriteItems"}}`,
			map[string][]string{enclosing: {"TransactWriteItems"}}, Granted},
		// What is not evaluated.
		{`{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":"a"}}`, nil, AsFar},
		{`{"StringEquals":{"dynamodb:LeadingKeys":"a"}}`, with("a", "b"), AsFar},
		{`{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":"${aws:PrincipalTag/tenant}#1"}}`, with("acme#1"), AsFar},
		{`{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":"${aws:PrincipalTag/tenant}#1"}}`, with("acme#2"), Missing},
		{`{"ForAllValues:StringNotEquals":{"dynamodb:LeadingKeys":"${aws:PrincipalTag/tenant}#1"}}`, with("acme#2"), Granted},
		{`{"ForAllValues:StringNotEquals":{"dynamodb:LeadingKeys":"${aws:PrincipalTag/tenant}#1"}}`, with("acme#1"), AsFar},
		{`{"StringEquals":{"aws:ResourceTag/team":"shop"}}`, with("a"), AsFar},
		{`{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`, with("a"), AsFar},
		{`{"NumericLessThan":{"aws:MultiFactorAuthAge":"3600"}}`, nil, AsFar},
		{`{"NumericLessThan":{"aws:MultiFactorAuthAge":"3600"},"Null":{"dynamodb:LeadingKeys":"true"}}`, with("a"), Missing},
	} {
		q := Request{Action: "dynamodb:GetItem", Resource: books, Context: tc.context}
		statement := `{"Statement":[{"Effect":"Allow","Action":"*","Resource":"*","Condition":` + tc.condition + `}]}`
		require.Equal(t, tc.want, role(t, statement).Allows(q).Outcome, "%s %v", tc.condition, tc.context)
		deny := strings.Replace(statement, "Allow", "Deny", 1)
		wants := map[Outcome]Outcome{Granted: Denied, Missing: Granted, AsFar: AsFar}
		require.Equal(t, wants[tc.want], role(t, all, deny).Allows(q).Outcome, "%s %v", deny, tc.context)
	}
	confined := role(t, `{"Statement":{"Effect":"Allow","Action":"*","Resource":"*","Condition":`+
		`{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":"acme#*"}}}}`)
	require.Equal(t, Decision{Missing, "ForAllValues:StringLike of dynamodb:LeadingKeys in policy 1"},
		confined.Allows(Request{Action: "dynamodb:GetItem", Resource: books, Context: with("b")}))
}

func TestWhatIsNoPolicy(t *testing.T) {
	for text, want := range map[string]string{
		`{"Statement":[{"Effect":"allow","Action":"*","Resource":"*"}]}`: "p is no policy: a statement needs an Effect",
		`{"Statement":[{"Effect":"Allow","Resource":"*"}]}`:              "an Action and a Resource",
		`{"Statement":[{"Effect":"Allow","Action":"*"}]}`:                "an Action and a Resource",
		`{"Statement":"*"}`:   "p is no policy: json",
		`"text"`:              "p is no policy: json",
		`{"Statement":[[1]]}`: "p is no policy: json",
		`{"Statement":[{"Effect":"Allow","Action":{"a":1},"Resource":"*"}]}`: "p is no policy",
	} {
		var document any
		require.NoError(t, json.Unmarshal([]byte(text), &document))
		_, err := Parse("p", document)
		require.ErrorContains(t, err, want, text)
	}
}

func TestManaged(t *testing.T) {
	of := func(arn string) Role {
		p, known := Managed(arn)
		require.True(t, known, arn)
		return Role{Policies: []Policy{p}}
	}
	require.Equal(t, Missing, of("arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole").
		Allows(ask("dynamodb:PutItem", books)).Outcome)
	require.Equal(t, Granted, of("arn:aws:iam::aws:policy/AmazonDynamoDBFullAccess").
		Allows(ask("dynamodb:PutItem", books)).Outcome)
	require.Equal(t, Missing, of("arn:aws:iam::aws:policy/AmazonDynamoDBReadOnlyAccess").
		Allows(ask("dynamodb:PutItem", books)).Outcome)
	for _, q := range Polls("jobs", "") {
		require.Equal(t, Granted, of("arn:aws:iam::aws:policy/service-role/AWSLambdaSQSQueueExecutionRole").Allows(q).Outcome)
	}
	for _, q := range Polls("", "Books") {
		require.Equal(t, Granted, of("arn:aws:iam::aws:policy/service-role/AWSLambdaDynamoDBExecutionRole").Allows(q).Outcome)
	}
	for _, arn := range []string{"arn:aws:iam::aws:policy/ReadOnlyAccess", "", "x",
		"arn:aws:iam::000000000000:policy/AmazonSQSFullAccess"} {
		_, known := Managed(arn)
		require.False(t, known, arn)
	}
}
