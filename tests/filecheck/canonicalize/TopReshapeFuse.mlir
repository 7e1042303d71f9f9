// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// Of two Reshapes in a row, the first used once, only the second stays.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<8x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %a = "top.Reshape"(%x) {shape = [2, 24]} : (tensor<2x4x6xf32>) -> tensor<2x24xf32> loc("a")
  %y = "top.Reshape"(%a) {shape = [8, 6]} : (tensor<2x24xf32>) -> tensor<8x6xf32> loc("y")
  func.return %y : tensor<8x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Reshape"(%x) {shape = [8 : i64, 6 : i64]}{{.*}} -> tensor<8x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<8x6xf32>
