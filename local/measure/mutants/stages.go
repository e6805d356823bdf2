package main

import (
	"slices"
	"strings"
)

// stages has the tests of a row by their name, as arguments of go test. Those of a stage run only if the ones
// before have not found the mistake: the cheap ones come first, then those of the packages above.
var stages = map[string][]string{
	"protocol": {"./idem/protocol ./idem/memstore", "./idem ./idem/later ./idem/reconcile"},
	"loop":     engine,
	"ends":     engine,
	"guard":    guard,
	"later":    {"./idem/later ./idem/protocol ./idem/memstore", "./idem ./idem/reconcile ./idem/idemhttp"},
	"dynamostore": {
		"./idem/dynamostore -skip=" + strings.Join(slices.Concat(notMeant, slow), "|"),
		"./idem/dynamostore -run=" + strings.Join(slow, "|"),
	},
	"casstore":           {"./idem/casstore"},
	"pgstore":            {"./idem/pgstore"},
	"engine-dynamostore": append(slices.Clone(engine), overDynamo),
	"guard-dynamostore":  append(slices.Clone(guard), overDynamo),
}

var (
	above  = "./idem/later ./idem/reconcile ./idem/idemhttp ./idem/memstore ./idem/pause"
	engine = []string{"./idem", above}
	guard  = []string{"./idem/internal/guard ./idem", above}
)

// overDynamo are the tests of the engine over DynamoDB.
var overDynamo = "./idem/dynamostore -run=" + strings.Join([]string{
	"TestDuplicatesAtOnce", "TestWatchedClaims", "TestTransactionLoses", "TestLargeResultCommits",
}, "|")

// notMeant are tests of dynamostore that compare requests word for word or count what they cost, and so find
// nearly any change, and long ones of what no mutant is in.
var notMeant = []string{
	"TestRequestsAreGolden", "TestAFirstExecutionSendsLittle",
	"TestManySteps", "TestManyMessages", "TestHeldMessages", "TestOutbox",
	"TestClient", "TestCheck", "TestCreateTable", "TestUnitsOf",
}

// slow are those that take seconds.
var slow = []string{
	"TestConformance", "TestLostReplies", "TestTwoChangeARecord", "TestSealedStepsFit", "TestResultsOfAllSizes",
}
