// RUN: tpusim opt -p 'cse' %s | filecheck %s
//
// The second Abs computes what the first has computed. The weights are two of a type, and stay two.
// WEIGHT w = 1 2 3
// WEIGHT v = 4 5

module attributes {module.state = "TOP_F32", module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4xf32>) -> tensor<1x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %w = "top.Weight"() : () -> tensor<1x4xf32> loc("w")
    %v = "top.Weight"() : () -> tensor<1x4xf32> loc("v")
    %a = "top.Abs"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("a")
    %b = "top.Abs"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("b")
    %c = "top.Mul"(%a, %w) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32> loc("c")
    %y = "top.Add"(%b, %v, %c) : (tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
    func.return %y : tensor<1x4xf32>
  }
}

// CHECK:      func.func @main(
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
// CHECK-NEXT: %w = "top.Weight"() : () -> tensor<1x4xf32> loc("w")
// CHECK-NEXT: %v = "top.Weight"() : () -> tensor<1x4xf32> loc("v")
// CHECK-NEXT: %a = "top.Abs"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("a")
// CHECK-NEXT: %c = "top.Mul"(%a, %w) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32> loc("c")
// CHECK-NEXT: %y = "top.Add"(%a, %v, %c) : (tensor<1x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4xf32>
