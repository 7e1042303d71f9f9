// RUN: tpusim opt -p 'apply-pdl{pdl_file=%S/patterns.pdl}' %s | filecheck %s
//
// A pattern as data: Abs of Abs is one Abs, if nothing else uses the inner one. The outer op's name stays.
// FILE patterns.pdl: pdl.pattern @AbsOfAbs : benefit(2) {
// FILE patterns.pdl:   %type = pdl.type
// FILE patterns.pdl:   %x = pdl.operand
// FILE patterns.pdl:   %inner = pdl.operation "top.Abs" (%x : !pdl.value) -> (%type : !pdl.type)
// FILE patterns.pdl:   %value = pdl.result 0 of %inner
// FILE patterns.pdl:   pdl.apply_native_constraint "one_use"(%value : !pdl.value)
// FILE patterns.pdl:   %outer = pdl.operation "top.Abs" (%value : !pdl.value) -> (%type : !pdl.type)
// FILE patterns.pdl:   pdl.rewrite %outer {
// FILE patterns.pdl:     %new = pdl.operation "top.Abs" (%x : !pdl.value) -> (%type : !pdl.type)
// FILE patterns.pdl:     pdl.replace %outer with %new
// FILE patterns.pdl:   }
// FILE patterns.pdl: }

module attributes {module.state = "TOP_F32"} {
  func.func @main(%in: tensor<1x4xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
    %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %a = "top.Abs"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("a")
    %y = "top.Abs"(%a) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
    %b = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("b")
    %z = "top.Abs"(%b) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("z")
    func.return %y, %z : tensor<1x4xf32>, tensor<1x4xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
// CHECK-NEXT: %a = "top.Abs"(%x) {{.*}} loc("a")
// CHECK-NEXT: %y = "top.Abs"(%x) {{.*}} loc(fused["y", "a"])
// CHECK-NEXT: %b = "top.Relu"(%x) {{.*}} loc("b")
// CHECK-NEXT: %z = "top.Abs"(%b) {{.*}} loc("z")
// CHECK-NEXT: func.return %y, %z
