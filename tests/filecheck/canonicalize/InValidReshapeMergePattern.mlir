// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// An Unsqueeze and a Reshape back to the shape before it are removed.

func.func @main(%in: tensor<1x4x6xf32>) -> tensor<1x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("x")
  %a = "top.Unsqueeze"(%x) {axes = [0]} : (tensor<1x4x6xf32>) -> tensor<1x1x4x6xf32> loc("a")
  %b0 = "top.Reshape"(%a) {shape = [1, 4, 6]} : (tensor<1x1x4x6xf32>) -> tensor<1x4x6xf32> loc("b0")
  %y = "top.Sin"(%b0) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("y")
  func.return %y : tensor<1x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6xf32>) -> tensor<1x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Sin"(%x) {{.*}} -> tensor<1x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4x6xf32>
