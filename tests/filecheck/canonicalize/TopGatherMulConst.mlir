// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Gather from a constant takes in the number that a MulConst multiplies its result by.
// WEIGHT rows = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %i = "top.Trunc"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("i")
    %rows = "top.Weight"() : () -> tensor<16x6xf32> loc("rows")
    %a = "top.Gather"(%rows, %i) {axis = 0} : (tensor<16x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6x6xf32> loc("a")
    %y = "top.MulConst"(%a) {const_val = 3.000000e+00 : f64} : (tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32> loc("y")
    func.return %y : tensor<2x4x6x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %i = "top.Trunc"(%x) {{.*}} -> tensor<2x4x6xf32> loc("i")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<16x6xf32> loc("y_table")
// CHECK-NEXT: %a = "top.Gather"(%0, %i) {axis = 0 : si32}{{.*}} -> tensor<2x4x6x6xf32> loc("y")
// CHECK-NEXT: func.return %a : tensor<2x4x6x6xf32>
