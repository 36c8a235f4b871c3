package parser

// What tests outside of the package need to see.
var (
	AppendNormal = appendNormal
	NameLen      = nameLen
)
