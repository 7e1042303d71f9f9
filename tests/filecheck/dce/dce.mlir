// RUN: tpusim opt -p 'dce' %s | filecheck %s
//
// What nothing uses goes, with its weight; an input of the network stays.
// WEIGHT w = 1 2 3

module attributes {module.state = "TOP_F32", module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4xf32>, %other: tensor<1x4xf32>) -> tensor<1x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %unused = "top.Input"(%other) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("unused")
    %w = "top.Weight"() : () -> tensor<1x4xf32> loc("w")
    %a = "top.Mul"(%x, %w) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32> loc("a")
    %b = "top.Abs"(%a) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("b")
    %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
    func.return %y : tensor<1x4xf32>
  }
}

// CHECK:      func.func @main(
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
// CHECK-NEXT: %unused = "top.Input"(%other) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("unused")
// CHECK-NEXT: %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4xf32>
