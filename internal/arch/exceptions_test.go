package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// Why a test may read the clock of the machine.
const (
	process   = "a process is the subject: a bound for what hangs, or a pause that chooses a moment in it"
	kernel    = "the kernel is the subject: lower bounds, a bound for what hangs, or a pause that chooses a moment"
	benchmark = "waits in a benchmark only"
	unseen    = "runs in bubbles, by ways that this package does not follow"
)

// wallClock lists the functions of tests, by package, that may wait by the clock of the machine or measure by it.
var wallClock = map[string]map[string]string{
	"cmd/bulkscan": {
		"TestReauditKilledAtManyMoments": process,
		"TestScanLeavesNothing":          process,
		"TestStoppedScanGoesOn":          process,
		"process.exits":                  process,
		"process.killAt":                 process,
		"eventually":                     process,
		"TestSlurm":                      process,
		"slurm.stop":                     process,
	},
	"fetcher": {
		"TestConnectTimeout":      kernel,
		"TestDirectCancelled":     kernel,
		"TestDirectFailsAsDialer": kernel,
		"TestDirectWaits":         kernel,
		"leaks":                   kernel,
		"later":                   unseen,
		"slow.Write":              unseen,
	},
	"fetcher/resolve": {
		"TestHostileAnswers": unseen,
		"late":               unseen,
	},
	"sink": {
		"far.Open": benchmark,
	},
	"internal/histories": {
		"history.restarting": unseen,
	},
	"store": {
		"TestDirIrregular": kernel,
	},
	"simweb": {
		"TestZooOnSockets": kernel,
		"TestWaited":       kernel,
	},
	"pipeline": {
		"TestAChangedAddressQueuesAnew":             unseen,
		"TestASlowedAddressHoldsUpNoSpilledRecords": unseen,
		"TestNewcomersDoNotPileUp":                  unseen,
		"TestSilentNamesDoNotHoldUpHops":            unseen,
		"closedAfter.Next":                          unseen,
		"lags.upTo":                                 unseen,
		"pause":                                     unseen,
		"throttling":                                unseen,
		"web.Do":                                    unseen,
		"web.Resolve":                               unseen,
		"world.Add":                                 unseen,
		"world.Resolve":                             unseen,
		"world.throttles":                           unseen,
	},
}

// readsClock are the functions of package time that wait or measure. compares are the methods of a time that measure
// together with time.Now.
var (
	readsClock = []string{"Sleep", "After", "AfterFunc", "Since", "Until", "NewTimer", "NewTicker", "Tick"}
	compares   = []string{"After", "Before", "Compare", "Sub"}
)

// reading is one place in a test that reads the clock outside a bubble.
type reading struct {
	name string // of the function, or Type.Method
	call string
	at   token.Position
}

// clocks knows what the tests of one package run in bubbles. A function runs in a bubble if synctest.Test or
// bubble.Test gets it, or if each of its uses is in a bubble. A function literal is used where the parameter, variable
// or field that holds it is; a method that no test calls by its name, where its type is. A benchmark, whose subject is
// elapsed time, is as good as a bubble.
type clocks struct {
	info    types.Info
	holders map[ast.Node]types.Object       // of function literals, declarations of functions, and types
	kinds   map[types.Object]types.Object   // the receivers of methods
	params  map[types.Object][]types.Object // of functions, and of variables that hold one
	set     map[*ast.Ident]bool             // what is assigned to: no use
	uses    map[types.Object][]use          // of objects declared in the package
	outside map[types.Object]bool           // used outside bubbles
	walk    func(visit func(n ast.Node, around []ast.Node))
}

// use is a place where an object is used: the nodes around it, and the parameter that receives it, if any.
type use struct {
	around []ast.Node
	given  types.Object
}

// started stands for the parameter of the functions that start a bubble.
var started types.Object = types.NewVar(token.NoPos, nil, "started", nil)

// readings returns the places in the test files of a package that read the clock outside bubbles.
func readings(fset *token.FileSet, files []*ast.File) []reading {
	c := &clocks{
		info: types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
			Types: map[ast.Expr]types.TypeAndValue{}},
		holders: map[ast.Node]types.Object{}, kinds: map[types.Object]types.Object{},
		params: map[types.Object][]types.Object{}, set: map[*ast.Ident]bool{},
		uses: map[types.Object][]use{}, outside: map[types.Object]bool{},
		walk: func(visit func(ast.Node, []ast.Node)) { walk(files, visit) },
	}
	// Imports are not needed: the package's own names are known without them.
	config := types.Config{Error: func(error) {}}
	_, _ = config.Check("", fset, files, &c.info)
	c.walk(c.bind)
	c.walk(c.give)
	c.walk(c.use)
	for changed := true; changed; {
		changed = false
		for object, uses := range c.uses {
			if !c.outside[object] && slices.ContainsFunc(uses, func(u use) bool {
				return !c.inBubble(u.around) &&
					!c.held(u.given)
			}) {
				c.outside[object], changed = true, true
			}
		}
	}
	var found []reading
	c.walk(func(n ast.Node, around []ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if at := fset.Position(n.Pos()); ok && strings.HasSuffix(at.Filename, "_test.go") && c.readsClock(call) &&
			!c.inBubble(around) {
			found = append(found, reading{nameOf(around), types.ExprString(call.Fun), at})
		}
	})
	return found
}

// walk visits every node together with those around it, the outermost first.
func walk(files []*ast.File, visit func(n ast.Node, around []ast.Node)) {
	for _, file := range files {
		var around []ast.Node
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				around = around[:len(around)-1]
				return true
			}
			visit(n, around)
			around = append(around, n)
			return true
		})
	}
}

// bind notes the object that holds a function, and the function's parameters.
func (c *clocks) bind(n ast.Node, _ []ast.Node) {
	hold := func(target, value ast.Expr) {
		name := ident(target)
		if literal, ok := value.(*ast.FuncLit); ok && name != nil {
			c.set[name] = true
			if object := c.object(name); object != nil { // it is of this package
				c.holders[literal] = object
				c.params[object] = append(c.params[object], c.parameters(literal.Type)...)
			}
		}
	}
	switch n := n.(type) {
	case *ast.FuncDecl:
		c.holders[n] = c.info.Defs[n.Name]
		c.params[c.info.Defs[n.Name]] = c.parameters(n.Type)
		switch {
		case strings.HasPrefix(n.Name.Name, "Benchmark"):
			c.holders[n] = started
		case n.Recv != nil:
			if name := receiver(n); name != nil {
				c.set[name] = true
				c.kinds[c.holders[n]] = c.info.Uses[name]
			}
		}
	case *ast.TypeSpec:
		c.holders[n] = c.info.Defs[n.Name]
	case *ast.AssignStmt:
		for i := range min(len(n.Lhs), len(n.Rhs)) {
			hold(n.Lhs[i], n.Rhs[i])
		}
	case *ast.ValueSpec:
		for i := range min(len(n.Names), len(n.Values)) {
			hold(n.Names[i], n.Values[i])
		}
	case *ast.CompositeLit:
		fields, _ := types.Unalias(c.info.Types[n].Type).(interface{ Underlying() types.Type })
		for i, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				hold(pair.Key, pair.Value)
			} else if literal, ok := element.(*ast.FuncLit); ok && fields != nil {
				if s, ok := fields.Underlying().(*types.Struct); ok && i < s.NumFields() {
					c.holders[literal] = s.Field(i)
				}
			}
		}
	}
}

// give notes the parameters that hold function literals, once those of all functions are known.
func (c *clocks) give(n ast.Node, _ []ast.Node) {
	if call, ok := n.(*ast.CallExpr); ok {
		for i, argument := range call.Args {
			if literal, ok := argument.(*ast.FuncLit); ok {
				if given := c.parameter(call, i); given != nil {
					c.holders[literal] = given
				}
			}
		}
	}
}

// use notes a use.
func (c *clocks) use(n ast.Node, around []ast.Node) {
	name, ok := n.(*ast.Ident)
	if !ok || c.set[name] || c.info.Uses[name] == nil {
		return
	}
	if _, ok := c.info.Uses[name].(*types.TypeName); ok && slices.ContainsFunc(around,
		func(n ast.Node) bool { _, ok := n.(*ast.FuncType); return ok }) {
		return // a parameter makes no value
	}
	u := use{around: slices.Clone(around)}
	if len(around) > 0 {
		if call, ok := around[len(around)-1].(*ast.CallExpr); ok {
			if i := slices.Index(call.Args, ast.Expr(name)); i >= 0 {
				u.given = c.parameter(call, i)
			}
		}
	}
	c.uses[c.info.Uses[name]] = append(c.uses[c.info.Uses[name]], u)
}

// parameter returns the parameter that receives an argument of a call; nil if that is unknown.
func (c *clocks) parameter(call *ast.CallExpr, i int) types.Object {
	switch types.ExprString(call.Fun) {
	case "synctest.Test", "bubble.Test":
		return started
	}
	name := ident(call.Fun)
	if name == nil {
		return nil
	}
	if params := c.params[c.object(name)]; len(params) > 0 {
		return params[min(i, len(params)-1)]
	}
	return nil
}

func (c *clocks) parameters(f *ast.FuncType) []types.Object {
	var params []types.Object
	for _, field := range f.Params.List {
		for _, name := range field.Names {
			params = append(params, c.info.Defs[name])
		}
	}
	return params
}

func (c *clocks) object(name *ast.Ident) types.Object {
	if object := c.info.Defs[name]; object != nil {
		return object
	}
	return c.info.Uses[name]
}

// held reports whether the function in an object runs in bubbles only.
func (c *clocks) held(by types.Object) bool {
	if by != nil && by != started && len(c.uses[by]) == 0 {
		by = c.kinds[by]
	}
	return by != nil && (by == started || len(c.uses[by]) > 0 && !c.outside[by])
}

func (c *clocks) inBubble(around []ast.Node) bool {
	return slices.ContainsFunc(around, func(n ast.Node) bool { return c.held(c.holders[n]) })
}

func (c *clocks) readsClock(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch types.ExprString(f.X) {
	case "time":
		return slices.Contains(readsClock, f.Sel.Name)
	case "waittest":
		return true
	}
	now := func(e ast.Expr) bool { return strings.Contains(types.ExprString(e), "time.Now()") }
	return slices.Contains(compares, f.Sel.Name) && (now(f.X) || slices.ContainsFunc(call.Args, now))
}

// nameOf returns the name of the function around a place.
func nameOf(around []ast.Node) string {
	for _, n := range around {
		if f, ok := n.(*ast.FuncDecl); ok {
			if name := receiver(f); name != nil {
				return name.Name + "." + f.Name.Name
			}
			return f.Name.Name
		}
	}
	return "no function"
}

// receiver returns the name of the type whose method a function is.
func receiver(f *ast.FuncDecl) *ast.Ident {
	if f.Recv == nil {
		return nil
	}
	kind := f.Recv.List[0].Type
	for {
		switch at := kind.(type) {
		case *ast.StarExpr:
			kind = at.X
		case *ast.IndexExpr:
			kind = at.X
		case *ast.Ident:
			return at
		default:
			return nil
		}
	}
}

// ident returns the name of a variable, a function, a field or a method.
func ident(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	}
	return nil
}

// sharedChannels returns the variables of a package that are channels, or hold one from the beginning. A channel may
// not be used in two bubbles.
func sharedChannels(files []*ast.File) []string {
	var found []string
	for _, file := range files {
		for _, declaration := range file.Decls {
			variables, ok := declaration.(*ast.GenDecl)
			if !ok || variables.Tok != token.VAR {
				continue
			}
			ast.Inspect(variables, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit:
					return false // it makes one when it is called
				case *ast.ValueSpec:
					if hasChannel(n) {
						found = append(found, n.Names[0].Name)
					}
				}
				return true
			})
		}
	}
	return found
}

// hasChannel reports whether a channel's type occurs in a declaration, functions left out.
func hasChannel(spec *ast.ValueSpec) bool {
	has := false
	ast.Inspect(spec, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncLit, *ast.FuncType:
			return false
		case *ast.ChanType:
			has = true
		}
		return true
	})
	return has
}
