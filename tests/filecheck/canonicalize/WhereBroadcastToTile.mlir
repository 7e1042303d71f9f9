// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A constant condition of one row becomes one of the result's shape.
// WEIGHT row = 1 0 1 0 1 0

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %row = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
    %none = "top.None"() : () -> none
    %y = "top.Where"(%row, %x, %none) {y_is_const = true, x_const_val = 0.000000e+00 : f64, y_const_val = 5.000000e-01 : f64} : (tensor<1x1x6xf32>, tensor<2x4x6xf32>, none) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      "top.Weight"() : () -> tensor<2x4x6xf32> loc("y_Tile")
// CHECK:      %y = "top.Where"({{.*}}(tensor<2x4x6xf32>, tensor<2x4x6xf32>, none) -> tensor<2x4x6xf32> loc("y")
